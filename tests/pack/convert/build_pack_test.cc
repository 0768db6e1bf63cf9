// BuildPack: what it writes opens, holds what the source held, is the same twice, and leaves
// nothing behind when it does not finish. Sources are synthetic, so that every value can be asked
// for again. Every byte goes through pack/writer/container_writers.cc and
// pack/writer/hashed_file.cc.
#include "pack/convert/build_pack.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/convert/expert_repack.h"
#include "pack/format/float_codes.h"
#include "pack/quant/q8_encoder.h"
#include "pack/reader/pack.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

BuildOptions To(const std::string& out) { return {.from = "", .out = out, .worker_count = 2}; }

absl::StatusOr<Pack> BuildAndOpen(const Checkpoint& source, const BuildOptions& options) {
  const absl::StatusOr<BuildReport> report = BuildPack(source, options, nullptr);
  if (!report.ok()) return report.status();
  return Pack::Open(options.out);
}

std::vector<float> DenseValues(const TensorFile& file, const TensorInfo& info) {
  std::vector<std::byte> bytes(info.bytes);
  EXPECT_TRUE(file.Read(info, bytes).ok()) << info.name;
  std::vector<float> values(size_t{info.rows} * info.cols);
  switch (info.format) {
    case MatrixFormat::kF32:
      std::memcpy(values.data(), bytes.data(), bytes.size());
      break;
    case MatrixFormat::kBf16:
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t code;
        std::memcpy(&code, bytes.data() + 2 * i, 2);
        values[i] = DecodeBf16(code);
      }
      break;
    case MatrixFormat::kQ8:
      DecodeQ8Rows(bytes, info.rows, info.cols, values);
      break;
  }
  return values;
}

// The source's values in the order in which the pack stores them.
std::vector<float> SourceValues(const Checkpoint& source, const DenseInfo& info) {
  std::vector<float> values(info.rows * info.cols);
  EXPECT_TRUE(source.ReadDenseRows(info.name, 0, info.rows, values).ok());
  if (!info.name.ends_with("conv1d")) return values;
  std::vector<float> transposed(values.size());
  for (size_t r = 0; r < info.rows; ++r) {
    for (size_t c = 0; c < info.cols; ++c)
      transposed[c * info.rows + r] = values[r * info.cols + c];
  }
  return transposed;
}

bool SameMatrix(const SourceMatrix& a, const SourceMatrix& b) {
  const auto same_floats = [](const std::vector<float>& x, const std::vector<float>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](float u, float v) {
      return std::bit_cast<uint32_t>(u) == std::bit_cast<uint32_t>(v);
    });
  };
  return a.rows == b.rows && a.cols == b.cols && a.codes == b.codes && a.scales == b.scales &&
         std::bit_cast<uint32_t>(a.multiplier) == std::bit_cast<uint32_t>(b.multiplier) &&
         same_floats(a.block_scales, b.block_scales) && same_floats(a.values, b.values);
}

std::vector<std::string> NamesIn(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(BuildPack, KeepsEveryExpertBitForBitInItsOwnFormat) {
  for (const ExpertFormat format :
       {ExpertFormat::kNvfp4, ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
    FixtureDir dir;
    const bool blocks = format == ExpertFormat::kNvfp4;  // 16 divides both sides there
    const SyntheticCheckpoint source({.hidden = blocks ? 48u : 40u,
                                      .width = blocks ? 80u : 23u,
                                      .experts = format,
                                      .mtp_experts = ExpertFormat::kFp8});
    const auto pack = BuildAndOpen(source, To(dir.File("pack")));
    ASSERT_TRUE(pack.ok()) << pack.status();
    for (uint32_t layer = 0; layer < source.geometry().layer_count_with_mtp(); ++layer) {
      const ExpertLayout& layout = pack->experts.layout(LayerId(layer));
      EXPECT_EQ(layout.format, source.expert_format(LayerId(layer)));
      for (uint32_t e = 0; e < source.geometry().moe.expert_count; ++e) {
        const ExpertKey key{LayerId(layer), ExpertId(e)};
        EXPECT_EQ(pack->experts.offset_bytes(key) % kExpertAlignBytes, 0u);
        std::vector<std::byte> blob(layout.blob_bytes());
        ASSERT_TRUE(pack->experts.Read(key, blob).ok());
        SourceExpert want;
        SourceExpert got;
        ASSERT_TRUE(source.ReadExpert(key, want).ok());
        UnpackExpert(layout, blob, got);
        EXPECT_TRUE(SameMatrix(want.gate, got.gate)) << ExpertFormatName(format);
        EXPECT_TRUE(SameMatrix(want.up, got.up)) << ExpertFormatName(format);
        EXPECT_TRUE(SameMatrix(want.down, got.down)) << ExpertFormatName(format);
      }
    }
  }
}

TEST(BuildPack, Bf16DenseHoldsTheSourceExactly) {
  for (const bool f32 : {false, true}) {
    FixtureDir dir;
    const SyntheticCheckpoint source(
        {.hidden = 40, .width = 23, .experts = ExpertFormat::kBf16, .f32_dense = f32});
    BuildOptions options = To(dir.File("pack"));
    options.dense = DenseChoice::kBf16;
    const auto pack = BuildAndOpen(source, options);
    ASSERT_TRUE(pack.ok()) << pack.status();
    for (const DenseInfo& info : source.dense()) {
      const TensorFile& file = info.name.starts_with("mtp.") ? *pack->mtp : pack->dense;
      const TensorInfo* stored = file.Find(info.name);
      ASSERT_NE(stored, nullptr) << info.name;
      EXPECT_EQ(DenseValues(file, *stored), SourceValues(source, info)) << info.name;
      EXPECT_EQ(stored->offset_bytes % 64, 0u);
    }
  }
}

TEST(BuildPack, Q8TakesTheProjectionsAndNothingElse) {
  FixtureDir dir;
  const SyntheticCheckpoint source({.hidden = 64, .layer_count = 4, .vocab_count = 50});
  const auto pack = BuildAndOpen(source, To(dir.File("pack")));
  ASSERT_TRUE(pack.ok()) << pack.status();
  const auto format = [&pack](std::string_view name) { return pack->dense.Find(name)->format; };
  EXPECT_EQ(format("lm_head"), MatrixFormat::kQ8);
  EXPECT_EQ(format("layers.0.linear_attn.in_proj_qkv"), MatrixFormat::kQ8);
  EXPECT_EQ(format("layers.0.linear_attn.out_proj"), MatrixFormat::kBf16);  // 16 columns
  EXPECT_EQ(format("layers.3.self_attn.q_proj"), MatrixFormat::kQ8);
  EXPECT_EQ(format("embed_tokens"), MatrixFormat::kBf16);
  EXPECT_EQ(format("layers.0.mlp.gate"), MatrixFormat::kBf16);
  EXPECT_EQ(format("layers.0.mlp.shared_expert_gate"), MatrixFormat::kBf16);
  EXPECT_EQ(format("layers.3.self_attn.indexer.index_qk_proj"), MatrixFormat::kBf16);
  EXPECT_EQ(format("layers.0.linear_attn.conv1d"), MatrixFormat::kF32);
  EXPECT_EQ(format("layers.0.linear_attn.A_log"), MatrixFormat::kF32);
  EXPECT_EQ(format("layers.0.attn_hyper_connection.hc_norm"), MatrixFormat::kF32);
  for (const DenseInfo& info : source.dense()) {
    const TensorFile& file = info.name.starts_with("mtp.") ? *pack->mtp : pack->dense;
    const TensorInfo* stored = file.Find(info.name);
    if (stored->format != MatrixFormat::kQ8) continue;
    const std::vector<float> want = SourceValues(source, info);
    const std::vector<float> got = DenseValues(file, *stored);
    // Values are within [-1, 1]: half a step of max / 127, and fp16's rounding of the scale.
    const float bound = 0.5f / 127 * (1 + 0x1p-10f) + 127 * 0x1p-11f / 127;
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << info.name;
  }
}

TEST(BuildPack, KeepsNgramRowsOfEveryFormat) {
  for (const NgramRowFormat format : {NgramRowFormat::kBf16, NgramRowFormat::kFp8,
                                      NgramRowFormat::kNvfp4, NgramRowFormat::kF32}) {
    FixtureDir dir;
    const SyntheticCheckpoint source(
        {.ngram_rows = 2 * kNgramRowsPerChunk + 5, .ngram_row_dim = 16, .ngram_format = format});
    auto pack = BuildAndOpen(source, To(dir.File("pack")));
    ASSERT_TRUE(pack.ok()) << pack.status();
    const uint64_t rows = source.ngram().row_count;
    std::vector<std::byte> want(rows * source.ngram().row_bytes);
    std::vector<std::byte> got(want.size());
    ASSERT_TRUE(source.ReadNgramRows(0, rows, want).ok());
    ASSERT_TRUE(pack->ngram->ReadRowBytes(0, rows, got).ok());
    EXPECT_TRUE(want == got) << NgramRowFormatName(format);

    const std::vector<uint64_t> ids = {rows - 1, 0, 4096, 4095, 0};
    std::vector<float> single(ids.size() * 16);
    std::vector<float> whole(single.size());
    ASSERT_TRUE(pack->ngram->ReadRows(ids, single).ok());
    ASSERT_TRUE(pack->ngram->LoadWhole().ok());
    ASSERT_TRUE(pack->ngram->ReadRows(ids, whole).ok());
    EXPECT_EQ(std::memcmp(single.data(), whole.data(), single.size() * 4), 0);
    const std::vector<uint64_t> bad = {rows};
    EXPECT_EQ(pack->ngram->ReadRows(bad, std::span(whole).first(16)).code(),
              absl::StatusCode::kOutOfRange);
  }
}

TEST(BuildPack, SameInputGivesTheSameBytesWhateverTheWorkers) {
  FixtureDir dir;
  const SyntheticCheckpoint source({.layer_count = 4});
  BuildOptions one = To(dir.File("one"));
  one.worker_count = 1;
  BuildOptions five = To(dir.File("five"));
  five.worker_count = 5;
  ASSERT_TRUE(BuildPack(source, one, nullptr).ok());
  ASSERT_TRUE(BuildPack(source, five, nullptr).ok());
  ASSERT_EQ(NamesIn(one.out), NamesIn(five.out));
  for (const std::string& name : NamesIn(one.out)) {
    EXPECT_EQ(ReadFixtureFile(one.out + "/" + name), ReadFixtureFile(five.out + "/" + name))
        << name;
  }
}

TEST(BuildPack, QuantisesToNvfp4WithinTheExpectedError) {
  FixtureDir dir;
  for (const ExpertFormat format : {ExpertFormat::kBf16, ExpertFormat::kF32, ExpertFormat::kFp8}) {
    const SyntheticCheckpoint source({.hidden = 64, .width = 32, .experts = format});
    BuildOptions options = To(dir.File(ExpertFormatName(format)));
    options.experts.choice = ExpertChoice::kNvfp4;
    const auto report = BuildPack(source, options, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->expert_format, ExpertFormat::kNvfp4);
    // Uniform values are easier than Gaussian ones (0.081 there with full scale search).
    EXPECT_LT(report->experts.error.RelativeRms(), 0.12);
    EXPECT_GT(report->experts.error.RelativeRms(), 0.01);
    const auto pack = Pack::Open(options.out);
    ASSERT_TRUE(pack.ok()) << pack.status();
    EXPECT_EQ(pack->manifest.experts, "nvfp4");
    EXPECT_EQ(pack->experts.layout(LayerId(2)).format, ExpertFormat::kBf16) << "the MTP layer";
  }
}

TEST(BuildPack, AskingForBf16RoundsNvfp4AndCountsIt) {
  FixtureDir dir;
  const SyntheticCheckpoint source({});
  BuildOptions options = To(dir.File("pack"));
  options.experts.choice = ExpertChoice::kBf16;
  const auto report = BuildPack(source, options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->expert_format, ExpertFormat::kBf16);
  EXPECT_GT(report->experts.inexact_values, 0u);
}

TEST(BuildPack, AnInterruptedBuildLeavesNothing) {
  FixtureDir dir;
  SyntheticCheckpoint source({});
  source.fail_at_layer = 1;
  const BuildOptions options = To(dir.File("pack"));
  const auto report = BuildPack(source, options, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("the source ends here"));
  EXPECT_TRUE(NamesIn(dir.path()).empty());
}

TEST(BuildPack, ProgressReachesItsTotalInEveryStage) {
  FixtureDir dir;
  const SyntheticCheckpoint source({});
  std::map<std::string, BuildProgress> last;
  ASSERT_TRUE(BuildPack(source, To(dir.File("pack")), [&last](const BuildProgress& p) {
                EXPECT_GE(p.done_bytes, last[p.stage].done_bytes);
                last[p.stage] = p;
              }).ok());
  std::set<std::string> stages;
  for (const auto& [stage, p] : last) {
    stages.insert(stage);
    EXPECT_EQ(p.done_bytes, p.total_bytes) << stage;
  }
  EXPECT_EQ(stages, (std::set<std::string>{"MTP head", "dense weights", "experts", "n-gram table",
                                           "source hash"}));
}

}  // namespace
}  // namespace hearth
