// The floor under every kernel: each byte is read once, in every order and by every instruction
// set, and the rate is bytes over the clock's time.
#include "cpu_kernels/bench/read_probe.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "cpu_kernels/bench/kernel_workload.h"
#include "cpu_kernels/bench/read_lines.h"
#include "runtime/base/load.h"
#include "runtime/base/prng.h"
#include "tests/cpu_kernels/bench/ticking_clock.h"

namespace hearth {
namespace {

constexpr int64_t kTickNs = 1'000'000;

TEST(ReadLinesTest, EveryWordIsReadOnceInEveryOrder) {
  constexpr uint64_t kBytesMax = 32768;
  LineArray<uint64_t> words(kBytesMax / 8);
  Prng prng(1);
  for (uint64_t i = 0; i < kBytesMax / 8; ++i) words.data()[i] = prng.Next();
  const auto* const bytes = reinterpret_cast<const std::byte*>(words.data());
  for (const CpuKernels& row : AllCpuKernels()) {
    if (!Supports(DetectCpuFeatures(), row.isa)) continue;
    for (const ReadOrder order : kReadOrders) {
      for (uint64_t count = 0; count <= kBytesMax; count += kReadGrainBytes) {
        uint64_t expected = 0;
        for (uint64_t i = 0; i < count; i += 8) expected ^= Load<uint64_t>(bytes + i);
        EXPECT_EQ(ReadLines(row.isa, order, bytes, count), expected)
            << IsaName(row.isa) << ", order " << static_cast<int>(order) << ", " << count;
      }
    }
  }
}

class ReadProbeTest : public testing::TestWithParam<uint32_t> {};

// One tick passes in each reading. A walk is calibrated to the whole memory, a loop to as many
// rounds as fit a sample.
TEST_P(ReadProbeTest, RateIsBytesOverTime) {
  const uint32_t workers = GetParam();
  WorkerTeam team(workers);
  TickingClock clock(kTickNs);
  LineArray<std::byte> memory(65536);
  const std::span<const std::byte> all(memory.data(), 65536);
  ReadProbe walk = ReadProbe::OfWalk(team, clock, Isa::kScalar, all);
  walk.Calibrate(100 * kTickNs);
  EXPECT_DOUBLE_EQ(walk.Sample(),
                   static_cast<double>(65536 / 8192 / workers * workers * 8192) * 1e3);
  ReadProbe loop = ReadProbe::OfLoop(team, clock, Isa::kScalar, all, 1500);
  loop.Calibrate(kTickNs);
  EXPECT_DOUBLE_EQ(loop.Sample(), 2048.0 * 2 * workers * 1e3);
}

INSTANTIATE_TEST_SUITE_P(Workers, ReadProbeTest, testing::Values(1, 2, 3));

TEST(ReadProbeEdgeTest, ALoopLargerThanTheMemoryIsCutToIt) {
  WorkerTeam team(2);
  TickingClock clock(kTickNs);
  LineArray<std::byte> memory(16384);
  ReadProbe probe =
      ReadProbe::OfLoop(team, clock, Isa::kScalar, {memory.data(), 16384}, uint64_t{1} << 30);
  probe.Calibrate(kTickNs);
  EXPECT_GT(probe.Sample(), 0);
}

}  // namespace
}  // namespace hearth
