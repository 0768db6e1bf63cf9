// A made-up pack opens, verifies and is the same for any number of workers; a build that does not
// fit or is interrupted leaves nothing.
#include "pack/synth/build_synthetic.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/format/float_codes.h"
#include "pack/reader/pack.h"
#include "pack/reader/verify.h"
#include "pack/synth/synthetic_dense.h"
#include "pack/synth/synthetic_expert.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/units.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

SyntheticShape TinyShape() {
  return {.model = SyntheticModel::kFlashlet,
          .layer_count = 4,
          .expert_count = 8,
          .experts_per_token = 2,
          .hidden = 64,
          .expert_width = 32,
          .ngram_head_rows = 1009,
          .has_mtp = true};
}

SyntheticPackOptions TinyOptions(const std::string& out) {
  return {.out = out, .shape = TinyShape(), .seed = 5, .worker_count = 2};
}

uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

TEST(BuildSynthetic, EveryFormatVerifiesAndOpens) {
  FixtureDir dir;
  struct Case {
    const char* name;
    ExpertFormat format;
    XtBits bits;
  };
  for (const Case& c :
       {Case{"nvfp4", ExpertFormat::kNvfp4, {}}, Case{"xt2", ExpertFormat::kXt, XtBits::All(2)},
        Case{"xt3", ExpertFormat::kXt, XtBits::All(3)},
        Case{"xt4", ExpertFormat::kXt, XtBits::All(4)}, Case{"bf16", ExpertFormat::kBf16, {}},
        Case{"fp8", ExpertFormat::kFp8, {}}}) {
    SyntheticPackOptions options = TinyOptions(dir.File(c.name));
    options.shape.format = c.format;
    options.shape.xt_bits = c.bits;
    const auto report = BuildSyntheticPack(options, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->expert_layout, c.name);
    const auto verified = VerifyPack(options.out, nullptr, 1);
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->ok()) << c.name << ": " << verified->faults[0].where;
    const auto pack = Pack::Open(options.out);
    ASSERT_TRUE(pack.ok()) << pack.status();
    EXPECT_EQ(pack->manifest.source_dialect, "synthetic");
    EXPECT_EQ(pack->experts.expert_count(), 8u);
    EXPECT_EQ(pack->experts.layout(LayerId(4)).format, ExpertFormat::kFp8) << "the MTP layer";
    uint64_t bytes = 0;
    for (const PackFile& file : pack->manifest.files) bytes += file.bytes;
    EXPECT_EQ(bytes, report->pack_bytes);
  }
}

TEST(BuildSynthetic, ZeroExpertsAreAPackThatVerifies) {
  FixtureDir dir;
  SyntheticPackOptions options = TinyOptions(dir.File("zeros"));
  options.zero_experts = true;
  ASSERT_TRUE(BuildSyntheticPack(options, nullptr).ok());
  const auto verified = VerifyPack(options.out, nullptr, 1);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->ok());
  const auto pack = Pack::Open(options.out);
  ASSERT_TRUE(pack.ok());
  std::vector<std::byte> blob(pack->experts.layout(LayerId(0)).blob_bytes(), std::byte{1});
  ASSERT_TRUE(pack->experts.Read({LayerId(0), ExpertId(3)}, blob).ok());
  EXPECT_THAT(blob, testing::Each(std::byte{0}));
}

TEST(BuildSynthetic, HoldsTheExpertsThatTheGeneratorMakes) {
  FixtureDir dir;
  ASSERT_TRUE(BuildSyntheticPack(TinyOptions(dir.File("pack")), nullptr).ok());
  const auto pack = Pack::Open(dir.File("pack"));
  ASSERT_TRUE(pack.ok()) << pack.status();
  const ExpertKey key{LayerId(2), ExpertId(5)};
  const ExpertLayout& layout = pack->experts.layout(key.layer);
  std::vector<std::byte> stored(layout.blob_bytes());
  std::vector<std::byte> made(layout.blob_bytes());
  ASSERT_TRUE(pack->experts.Read(key, stored).ok());
  FillSyntheticExpert(layout, key, 5, made);
  EXPECT_EQ(stored, made);
  EXPECT_EQ(pack->experts.crc32c(key), Crc32c(made));
}

TEST(BuildSynthetic, SameSeedSameBytesWhateverTheWorkers) {
  FixtureDir dir;
  SyntheticPackOptions options = TinyOptions(dir.File("one"));
  options.worker_count = 1;
  const auto one = BuildSyntheticPack(options, nullptr);
  options.out = dir.File("three");
  options.worker_count = 3;
  const auto three = BuildSyntheticPack(options, nullptr);
  options.out = dir.File("other");
  options.seed = 6;
  const auto other = BuildSyntheticPack(options, nullptr);
  ASSERT_TRUE(one.ok() && three.ok() && other.ok());
  ASSERT_EQ(one->files.size(), three->files.size());
  for (size_t i = 0; i < one->files.size(); ++i) {
    const PackFile& file = one->files[i];
    EXPECT_EQ(file.xxh3_128, three->files[i].xxh3_128) << file.name;
    const bool holds_weights = file.name.ends_with(".bin");
    EXPECT_EQ(file.xxh3_128 != other->files[i].xxh3_128, holds_weights) << file.name;
  }
  EXPECT_EQ(ReadFixtureFile(dir.File("one/manifest.json")),
            ReadFixtureFile(dir.File("three/manifest.json")));
}

TEST(BuildSynthetic, DenseValuesAreFiniteAndOfTheirSize) {
  FixtureDir dir;
  SyntheticPackOptions options = TinyOptions(dir.File("pack"));
  options.shape.hidden = 272;  // the last block of no row, the last band of some matrices
  ASSERT_TRUE(BuildSyntheticPack(options, nullptr).ok());
  const auto pack = Pack::Open(options.out);
  ASSERT_TRUE(pack.ok()) << pack.status();
  uint32_t q8_count = 0;
  for (const TensorInfo& info : pack->dense.tensors()) {
    std::vector<std::byte> bytes(info.bytes);
    ASSERT_TRUE(pack->dense.Read(info, bytes).ok()) << info.name;
    double squares = 0;
    uint64_t count = 0;
    const auto add = [&](float value) {
      ASSERT_TRUE(std::isfinite(value)) << info.name;
      squares += static_cast<double>(value) * value;
      ++count;
    };
    if (info.format == MatrixFormat::kQ8) {
      ++q8_count;
      const auto codes = uint64_t{info.cols} * kBandRows;
      for (uint32_t band = 0; band < BandCount(info.rows); ++band) {
        const std::byte* at = bytes.data() + band * Q8BandBytes(info.cols);
        for (uint64_t i = 0; i < codes; ++i) {
          EXPECT_NE(at[i], std::byte{0}) << info.name << ": -128 is not a value";
          const uint64_t row = band * kBandRows + i / 4 % kBandRows;
          uint16_t scale;
          std::memcpy(&scale, at + codes + i / 512 * 32 + row % kBandRows * 2, sizeof(scale));
          const int value = std::to_integer<int>(at[i]) - 128;
          if (row >= info.rows) {
            EXPECT_EQ(value, 0) << info.name << ": padding";
          } else {
            add(static_cast<float>(value) * DecodeFp16(scale));
          }
        }
      }
    } else {
      const uint64_t width = info.format == MatrixFormat::kF32 ? 4 : 2;
      for (uint64_t i = 0; i < bytes.size(); i += width) {
        uint32_t bits = 0;
        std::memcpy(reinterpret_cast<char*>(&bits) + (4 - width), bytes.data() + i, width);
        add(std::bit_cast<float>(bits));
      }
    }
    EXPECT_EQ(count, uint64_t{info.rows} * info.cols) << info.name;
    EXPECT_GT(squares, 0) << info.name;
    EXPECT_LT(std::sqrt(squares / static_cast<double>(count)), 8) << info.name;
  }
  EXPECT_GT(q8_count, 10u);
}

TEST(BuildSynthetic, ADiskWithoutRoomIsRefusedBeforeAnythingIsWritten) {
  FixtureDir dir;
  SyntheticPackOptions options = TinyOptions(dir.File("pack"));
  options.shape = {.model = SyntheticModel::kFlashNext,
                   .layer_count = 1000,
                   .expert_count = 16384,
                   .format = ExpertFormat::kBf16};
  const absl::Status status = BuildSyntheticPack(options, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(BuildSynthetic, AnInterruptedBuildLeavesNothing) {
  FixtureDir dir;
  uint32_t calls_left = 0;
  SyntheticPackOptions options = TinyOptions(dir.File("pack"));
  options.is_cancelled = [&calls_left] { return calls_left-- == 0; };
  for (const uint32_t calls : {0u, 5u, 50u, 100u}) {
    calls_left = calls;
    const absl::Status status = BuildSyntheticPack(options, nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << calls << ": " << status;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << calls;
  }
}

TEST(BuildSynthetic, ProgressOfEachStageEndsAtItsTotal) {
  FixtureDir dir;
  std::map<std::string, BuildProgress> last;
  ASSERT_TRUE(BuildSyntheticPack(TinyOptions(dir.File("pack")), [&last](const BuildProgress& p) {
                EXPECT_GE(p.done_bytes, last[p.stage].done_bytes);
                last[p.stage] = p;
              }).ok());
  EXPECT_EQ(last.size(), 4u) << "dense weights, MTP head, experts, n-gram table";
  for (const auto& [stage, p] : last) EXPECT_EQ(p.done_bytes, p.total_bytes) << stage;
}

TEST(BuildSynthetic, MemoryDoesNotFollowTheSizeOfThePack) {
  FixtureDir dir;
  SyntheticPackOptions options = {.out = dir.File("pack"),
                                  .shape = {.model = SyntheticModel::kFlashlet,
                                            .layer_count = 4,
                                            .hidden = 1024,
                                            .expert_width = 512,
                                            .experts_bytes = 200_MiB},
                                  .worker_count = 2};
  const uint64_t before = PeakBytes();
  const auto report = BuildSyntheticPack(options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->pack_bytes, 200_MiB);
  const uint64_t growth = PeakBytes() - before;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own: grew by " << growth;
#endif
  EXPECT_LT(growth, 64_MiB);
}

}  // namespace
}  // namespace hearth
