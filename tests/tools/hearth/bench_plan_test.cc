// The flags of `hearth bench kernels`: what they choose, and what is refused before anything runs.
#include "tools/hearth/bench_plan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu_kernels/bench/bench_shape.h"
#include "cpu_kernels/bench/kernel_catalogue.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint32_t kAllThreads = 6;

absl::StatusOr<BenchPlan> Plan(const std::vector<std::pair<std::string, std::string>>& given) {
  BenchKernelsConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  for (const auto& [name, value] : given) {
    const absl::Status status = SetField(fields, name, value);
    if (!status.ok()) return status;
  }
  return PlanBench(config, kAllThreads);
}

TEST(BenchPlanTest, TheFieldsAreWellFormed) {
  BenchKernelsConfig config;
  const absl::Status status = CheckFields(FieldsOf(config));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(BenchPlanTest, WithoutFlagsEverythingRunsOnTheBestInstructionSet) {
  const auto plan = Plan({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->families.size(), AllKernelFamilies(FlashNextShape()).size());
  EXPECT_THAT(plan->options.kernels, ElementsAre(&SelectCpuKernels(DetectCpuFeatures())));
  EXPECT_THAT(plan->options.rows, ElementsAre(1, 2, 4, 7, 8));
  EXPECT_THAT(plan->options.residences, ElementsAre(Residence::kCache, Residence::kDram));
  EXPECT_THAT(plan->thread_counts, ElementsAre(1, kAllThreads));
  EXPECT_EQ(plan->options.memory_bytes, 512_MiB);
  EXPECT_GE(plan->options.sample_count_min, 10u);
}

TEST(BenchPlanTest, FlagsNarrowTheChoice) {
  const auto plan = Plan({{"isa", "scalar"},
                          {"filter", "gate_up,silu"},
                          {"format", "nvfp4"},
                          {"rows", "4,1,4"},
                          {"residence", "dram"},
                          {"threads", "2,all,2"},
                          {"memory", "1GiB"},
                          {"seconds_per_case", "1.1"},
                          {"shape", "64x32"}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(plan->families, SizeIs(2));
  EXPECT_EQ(plan->families[0].name, "expert_gate_up/nvfp4");
  EXPECT_EQ(plan->families[0].shape, "64x64");
  EXPECT_EQ(plan->families[1].name, "silu");
  ASSERT_THAT(plan->options.kernels, SizeIs(1));
  EXPECT_EQ(plan->options.kernels[0]->isa, Isa::kScalar);
  EXPECT_THAT(plan->options.rows, ElementsAre(1, 4));
  EXPECT_THAT(plan->options.residences, ElementsAre(Residence::kDram));
  EXPECT_THAT(plan->thread_counts, ElementsAre(2, kAllThreads));
  EXPECT_EQ(plan->options.memory_bytes, 1_GiB);
  EXPECT_NEAR(static_cast<double>(plan->options.case_ns), 1.1e9, 1e6);
}

TEST(BenchPlanTest, AllInstructionSetsAreThoseOfThisProcessor) {
  const auto plan = Plan({{"isa", "all"}});
  ASSERT_TRUE(plan.ok());
  for (const CpuKernels* row : plan->options.kernels) {
    EXPECT_TRUE(Supports(DetectCpuFeatures(), row->isa));
  }
  EXPECT_EQ(plan->options.kernels.back()->isa, Isa::kScalar);
}

TEST(BenchPlanTest, WhatCannotBeMeasuredIsRefusedByName) {
  struct Case {
    const char* field;
    const char* value;
    const char* named;
  };
  for (const Case& c :
       {Case{"isa", "avx1024", "scalar"}, Case{"isa", "scalar,", "scalar"}, Case{"isa", "", "auto"},
        Case{"filter", "nvpf4", "expert_gate_up/nvfp4"}, Case{"filter", "silu,nothing", "rms_norm"},
        Case{"format", "int3", "nvfp4"}, Case{"rows", "0", "from 1 to 512"},
        Case{"rows", "1,,2", "from 1 to 512"}, Case{"rows", "513", "from 1 to 512"},
        Case{"rows", "all", "from 1 to 512"}, Case{"rows", "", "from 1 to 512"},
        Case{"residence", "disk", "cache,dram"}, Case{"residence", "cache,cash", "cache,dram"},
        Case{"threads", "1025", "or all"}, Case{"threads", "-1", "or all"},
        Case{"memory", "512", "512MiB"}, Case{"memory", "1MiB", "at least 16.0 MiB"},
        Case{"shape", "64x48", "multiples of 32"},
        Case{"seconds_per_case", "0", "seconds_per_case"}}) {
    const auto plan = Plan({{c.field, c.value}});
    ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << c.field << c.value;
    const std::string message(plan.status().message());
    EXPECT_THAT(message, HasSubstr(c.field));
    EXPECT_THAT(message, HasSubstr(c.named));
  }
}

}  // namespace
}  // namespace hearth::cli
