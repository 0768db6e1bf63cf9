// The memory of a build does not follow the size of the model: the peak of the process, as the
// kernel counts it, stays far below a pack of 300 MB.
#include <fstream>
#include <string>

#include "gtest/gtest.h"

#include "pack/convert/build_pack.h"
#include "runtime/base/units.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

TEST(BuildMemory, StaysFarBelowThePack) {
  FixtureDir dir;
  const SyntheticCheckpoint source({.hidden = 1024,
                                    .width = 512,
                                    .expert_count = 48,
                                    .layer_count = 2,
                                    .experts = ExpertFormat::kBf16,
                                    .has_mtp = false});
  const uint64_t before = PeakBytes();
  const auto report =
      BuildPack(source, {.from = "", .out = dir.File("pack"), .worker_count = 2}, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->pack_bytes, 300'000'000u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Two banks of four experts, 3 MiB of blob and 6 MiB of values each.
  EXPECT_LT(PeakBytes() - before, 160_MiB);
#endif
  RecordProperty("peak_mib", static_cast<int>((PeakBytes() - before) >> 20));
  std::printf("peak grew by %s for a pack of %s\n", FormatBytes(PeakBytes() - before).c_str(),
              FormatBytes(report->pack_bytes).c_str());
}

}  // namespace
}  // namespace hearth
