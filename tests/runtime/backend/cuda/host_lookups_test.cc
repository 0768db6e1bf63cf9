// What the host looks up for a pass on a card: n-gram rows, embeddings, shared among workers or
// not. No card is needed.
#include "runtime/backend/cuda/host_lookups.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pack/convert/build_pack.h"
#include "pack/format/float_codes.h"
#include "pack/reader/pack.h"
#include "runtime/backend/pass_input.h"
#include "runtime/base/worker_team.h"
#include "runtime/model/ngram_hash.h"
#include "tests/support/hash_model.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

TEST(HashNgrams, RowsOfTheNewTokensOnly) {
  const ModelGeometry g = HashModel().geometry();
  ASSERT_NE(g.ngram.row_count, 0u);
  const std::vector<TokenId> tokens = {3, 9, 27, 81, 243};
  const uint32_t heads = g.ngram.head_count();
  std::vector<uint64_t> rows(2 * heads), want(2 * heads);
  EXPECT_EQ(HashNgrams(g.ngram, tokens, 3, rows.data()), rows.data() + 2 * heads);
  NgramRows(g.ngram, tokens, 3, std::span(want).first(heads));
  NgramRows(g.ngram, tokens, 4, std::span(want).last(heads));
  EXPECT_EQ(rows, want);
}

// A pack with a table of FP8 rows.
class NgramTable : public testing::Test {
 protected:
  static constexpr uint32_t kDim = 48;

  void SetUp() override {
    const SyntheticCheckpoint source(
        {.ngram_rows = 5000, .ngram_row_dim = kDim, .ngram_format = NgramRowFormat::kFp8});
    const std::string out = dir_.File("pack");
    const auto report = BuildPack(source, {.from = "", .out = out, .worker_count = 1}, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    absl::StatusOr<Pack> pack = Pack::Open(out);
    ASSERT_TRUE(pack.ok()) << pack.status();
    file_ = std::move(pack->ngram);
    rows_.resize(3001);
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = i * 7919 % file_->row_count();
  }

  FixtureDir dir_;
  std::unique_ptr<NgramFile> file_;
  std::vector<uint64_t> rows_;
};

TEST_F(NgramTable, WorkersReadWhatTheCodesSay) {
  std::vector<std::byte> codes(kDim);
  std::vector<float> want;
  for (const uint64_t row : rows_) {
    ASSERT_TRUE(file_->ReadRowBytes(row, 1, codes).ok());
    for (const std::byte code : codes) {
      want.push_back(DecodeE4m3(std::to_integer<uint8_t>(code)) * file_->scale());
    }
  }
  WorkerTeam team(3);
  for (const bool in_memory : {false, true}) {
    if (in_memory) {
      ASSERT_TRUE(file_->LoadWhole().ok());
    }
    for (WorkerTeam* const workers : {static_cast<WorkerTeam*>(nullptr), &team}) {
      std::vector<float> got(want.size(), -1.0f);
      ASSERT_TRUE(ReadNgramRows(*file_, rows_, workers, got).ok());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
          << in_memory << " " << (workers != nullptr);
    }
  }
}

TEST_F(NgramTable, OfSeveralBadRowsTheFirstIsNamed) {
  WorkerTeam team(3);
  std::vector<float> out(rows_.size() * kDim);
  rows_[2900] = 123456;
  rows_[700] = 5678;
  const absl::Status status = ReadNgramRows(*file_, rows_, &team, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("row 5678"), std::string::npos) << status;
}

TEST(EmbedPrompt, WorkersWriteEveryTokensRow) {
  std::vector<uint16_t> codes(64 * 40);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  const MatrixView table{.format = MatrixFormat::kBf16,
                         .rows = 64,
                         .cols = 40,
                         .data = std::as_bytes(std::span(codes))};
  std::vector<TokenId> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 29 % 64);
  std::vector<float> want(tokens.size() * 40), got(tokens.size() * 40, -1.0f);
  (void)EmbedTokens(table, tokens, want.data());
  WorkerTeam team(3);
  EmbedPrompt(table, tokens, &team, got.data());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace hearth
