// Every kernel of the table has a benchmark, and its data stays what it should be however often it
// runs. Tests cpu_kernels/bench/weight_families.cc, cpu_kernels/bench/elementwise_families.cc and
// cpu_kernels/bench/mixer_families.cc.
#include "cpu_kernels/bench/kernel_catalogue.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/load.h"

namespace hearth {
namespace {

TEST(KernelCatalogueTest, EveryKernelOfTheTableHasAFamily) {
  std::set<size_t> expected;
  for (size_t at = offsetof(CpuKernels, quantize_rows); at < sizeof(CpuKernels); at += 8) {
    expected.insert(at);
  }
  std::set<size_t> found;
  for (const KernelFamily& family : AllKernelFamilies(FlashNextShape())) {
    found.insert(family.kernel_offset_bytes);
  }
  EXPECT_EQ(found, expected) << "a member of CpuKernels at an offset that only one of the two has "
                                "needs a family in cpu_kernels/bench";
}

TEST(KernelCatalogueTest, NamesDiffer) {
  std::set<std::string> names;
  for (const KernelFamily& family : AllKernelFamilies(FlashletShape())) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.shape.empty()) << family.name;
  }
}

TEST(KernelCatalogueTest, FactsOfAnExpertAreThoseOfItsWeights) {
  for (const KernelFamily& family : AllKernelFamilies(FlashNextShape())) {
    if (family.name != "expert_gate_up/nvfp4") continue;
    const auto workload = family.make(4, 1);
    const WorkloadFacts& facts = workload->facts();
    EXPECT_EQ(facts.weight_count, 1280u * 2560u);
    EXPECT_EQ(facts.moved_bytes, 1280u * 2560u * 9 / 16);  // 4 bits and a scale of 8 for 16
    EXPECT_EQ(facts.touched_bytes, facts.moved_bytes);
    EXPECT_EQ(facts.share_count, 40u);
    EXPECT_EQ(facts.runs_per_job, 10u);
    return;
  }
  FAIL() << "no expert_gate_up/nvfp4";
}

struct Memory {
  explicit Memory(const WorkloadFacts& facts)
      : in(facts.in_bytes + kLineBytes), out(facts.out_bytes + kLineBytes) {}
  LineArray<std::byte> in, out;
};

TEST(KernelCatalogueTest, EveryFamilyRunsOnEveryInstructionSetAndLeavesItsInputAlone) {
  for (const KernelFamily& family : AllKernelFamilies(FlashletShape())) {
    for (const uint32_t rows : {1u, 3u}) {
      const auto workload = family.make(rows, 2);
      const WorkloadFacts& facts = workload->facts();
      EXPECT_GE(facts.moved_bytes, facts.touched_bytes) << family.name;
      EXPECT_LE(facts.touched_bytes, facts.in_bytes + facts.out_bytes) << family.name;
      Memory memory(facts);
      family.fill({memory.in.data(), facts.in_bytes});
      const std::vector<std::byte> before(memory.in.data(), memory.in.data() + facts.in_bytes);
      for (const CpuKernels& row : AllCpuKernels()) {
        if (!Supports(DetectCpuFeatures(), row.isa)) continue;
        const uint32_t half = facts.share_count / 2;
        workload->Run(row, {memory.in.data(), memory.out.data()}, 1, 0, half);
        workload->Run(row, {memory.in.data(), memory.out.data()}, 0, half, facts.share_count);
      }
      const std::vector<std::byte> after(memory.in.data(), memory.in.data() + facts.in_bytes);
      EXPECT_EQ(before, after) << family.name;
    }
  }
}

// Kernels that update in place run thousands of times on the same values.
TEST(KernelCatalogueTest, ValuesStayOrdinaryHoweverOftenAKernelRuns) {
  const CpuKernels& row = SelectCpuKernels(DetectCpuFeatures());
  for (const KernelFamily& family : AllKernelFamilies(FlashletShape())) {
    if (!family.format.empty() || family.name.ends_with("quantize_rows")) continue;  // not fp32
    const auto workload = family.make(2, 1);
    const WorkloadFacts& facts = workload->facts();
    Memory memory(facts);
    family.fill({memory.in.data(), facts.in_bytes});
    family.fill({memory.out.data(), facts.out_bytes});
    for (int i = 0; i < 2000; ++i) {
      workload->Run(row, {memory.in.data(), memory.out.data()}, 0, 0, facts.share_count);
    }
    for (uint64_t i = 0; i + 4 <= facts.out_bytes; i += 4) {
      const auto value = Load<float>(memory.out.data() + i);
      ASSERT_TRUE(std::isfinite(value) && std::fpclassify(value) != FP_SUBNORMAL)
          << family.name << " at " << i / 4 << ": " << value;
    }
  }
}

}  // namespace
}  // namespace hearth
