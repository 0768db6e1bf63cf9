// What is refused before a pass begins, and the embeddings that it starts from.
#include "runtime/backend/pass_input.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pack/synth/synthetic_geometry.h"

namespace hearth {
namespace {

ModelGeometry Geometry() { return NamedGeometry(SyntheticModel::kFlashNext); }

void ExpectRefused(const absl::Status& status, absl::StatusCode code, std::string_view what) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_NE(std::string(status.message()).find(what), std::string::npos) << status.ToString();
}

TEST(CheckTrunk, RowsAndTokens) {
  const ModelGeometry g = Geometry();
  const PassLimits limits{.prompt_rows_max = 8, .window_rows_max = 3};
  const std::vector<TokenId> four = {1, 2, 3, 4};
  const std::vector<TokenId> strange = {1, static_cast<TokenId>(g.vocab_count)};
  const auto check = [&](std::vector<Segment> segments, Phase phase) {
    return CheckTrunk(g, limits, segments, phase);
  };
  EXPECT_TRUE(check({{.tokens = four}, {.tokens = four}}, Phase::kPrompt).ok());
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(check({}, Phase::kPrompt), kInvalid, "a pass of 0 rows: at most 8 here");
  ExpectRefused(check({{.tokens = four}}, Phase::kWindow), kInvalid, "4 rows: at most 3 here");
  ExpectRefused(check({{.tokens = {}}}, Phase::kPrompt), kInvalid, "a segment without tokens");
  ExpectRefused(check({{.tokens = strange}}, Phase::kPrompt), kInvalid, "token 1 is ");
}

TEST(CheckDraft, HeadRowsRoomAndHiddenStates) {
  const ModelGeometry g = Geometry();
  const std::vector<TokenId> two = {1, 2};
  const DraftAsk good{.tokens = two,
                      .base = 5,
                      .context_tokens_max = 7,
                      .rows_max = 2,
                      .has_head = true,
                      .has_hidden = true};
  EXPECT_TRUE(CheckDraft(g, good).ok());
  const auto but = [&](auto change) {
    DraftAsk ask = good;
    change(ask);
    return CheckDraft(g, ask);
  };
  using enum absl::StatusCode;
  ExpectRefused(but([](DraftAsk& a) { a.has_head = false; }), kFailedPrecondition, "no MTP head");
  ExpectRefused(but([](DraftAsk& a) { a.has_hidden = false; }), kFailedPrecondition,
                "hidden states of positions 5 to 6");
  ExpectRefused(but([](DraftAsk& a) { a.base = 6; }), kResourceExhausted, "no room to draft at 6");
  ExpectRefused(but([](DraftAsk& a) { a.rows_max = 1; }), kInvalidArgument, "of 2 rows");
  ExpectRefused(but([](DraftAsk& a) { a.source = Backend::DraftSource::kChained; }),
                kInvalidArgument, "of 2 rows");
  ExpectRefused(but([](DraftAsk& a) { a.tokens = {}; }), kInvalidArgument, "of 0 rows");
}

TEST(CheckPrediction, TrunkLayersOfWindowsOnly) {
  const ModelGeometry g = Geometry();
  EXPECT_TRUE(CheckPrediction(g, true, LayerId(g.layer_count() - 1)).ok());
  EXPECT_FALSE(CheckPrediction(g, true, LayerId(g.layer_count())).ok());
  EXPECT_FALSE(CheckPrediction(g, false, LayerId(0)).ok());
  EXPECT_TRUE(CheckDraftKept(true).ok());
  EXPECT_FALSE(CheckDraftKept(false).ok());
  EXPECT_TRUE(CheckNgramTable(g, true).ok());
  EXPECT_FALSE(CheckNgramTable(g, false).ok());
}

TEST(EmbedTokens, DecodesBf16AndCopiesF32) {
  const std::vector<uint16_t> bf16 = {0x3F80, 0x4000, 0xBF80, 0x0000};
  const std::vector<TokenId> tokens = {1, 0, 1};
  std::vector<float> out(6);
  EXPECT_EQ(EmbedTokens({.format = MatrixFormat::kBf16,
                         .rows = 2,
                         .cols = 2,
                         .data = std::as_bytes(std::span(bf16))},
                        tokens, out.data()),
            out.data() + 6);
  EXPECT_EQ(out, (std::vector<float>{-1, 0, 1, 2, -1, 0}));
  const std::vector<float> f32 = {5, 6, 7, 8};
  EmbedTokens(
      {.format = MatrixFormat::kF32, .rows = 2, .cols = 2, .data = std::as_bytes(std::span(f32))},
      tokens, out.data());
  EXPECT_EQ(out, (std::vector<float>{7, 8, 5, 6, 7, 8}));
}

}  // namespace
}  // namespace hearth
