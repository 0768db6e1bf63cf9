// What `hearth bench kernels` prints: the tables, the JSON object, the warnings.
#include "tools/hearth/bench_report.h"

#include <nlohmann/json.hpp>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BenchMachine QuietMachine() {
  return {.facts = {.cpu_model = "Ryzen 9 9950X",
                    .caches = {.l1d = 48_KiB, .l2 = 1_MiB, .l3 = 64_MiB},
                    .huge_pages = "madvise",
                    .load_average = 0.25},
          .allowed_cpus = 2,
          .workers = {"2 workers pinned to CPUs 0-1"},
          .memory_bytes = 512_MiB,
          .huge_page_bytes = 512_MiB,
          .read_rates = {{MemoryLevel::kL2, 1, 100e9}, {MemoryLevel::kDram, 2, 50e9}}};
}

// 1,000 weights in 500 bytes; 100 ns for each row.
CaseResult WeightCase(uint32_t rows, Residence residence, uint32_t threads) {
  return {.isa = Isa::kAvx2,
          .rows = rows,
          .residence = residence,
          .thread_count = threads,
          .level = residence == Residence::kCache ? MemoryLevel::kL1 : MemoryLevel::kDram,
          .facts = {.touched_bytes = 500, .moved_bytes = 500, .weight_count = 1000},
          .run_ns = 100.0 * rows,
          .best_run_ns = 90.0 * rows,
          .spread = 0.02,
          .read_bytes_per_sec = 10e9,
          .sample_count = 11};
}

FamilyReport WeightReport() {
  FamilyReport report{.name = "expert_down/nvfp4", .shape = "2560x640", .format = "nvfp4"};
  for (const uint32_t rows : {1u, 4u}) {
    report.cases.push_back(WeightCase(rows, Residence::kCache, 1));
    report.cases.push_back(WeightCase(rows, Residence::kDram, 2));
  }
  return report;
}

TEST(BenchReportTest, ATableHasOneLineForEachNumberOfRows) {
  EXPECT_EQ(FamilyTable(WeightReport()),
            "\nexpert_down/nvfp4 2560x640, avx2: 0.00 M weights, 0.00 MB\n"
            "                  1 core, L1           2 cores, DRAM\n"
            "rows   GB/s   Gw/s %read  +-   GB/s   Gw/s %read  +-\n"
            "   1    5.0   10.0    50   2    5.0   10.0    50   2\n"
            "   4    1.2    2.5    12   2    1.2    2.5    12   2\n");
}

TEST(BenchReportTest, KernelsWithoutWeightsShowTimePerRow) {
  FamilyReport report{.name = "silu", .shape = "64"};
  report.cases.push_back(WeightCase(4, Residence::kCache, 1));
  report.cases.back().facts.weight_count = 0;
  EXPECT_THAT(FamilyTable(report), HasSubstr("silu 64, avx2: 0.5 kB for 4 rows\n"));
  EXPECT_THAT(FamilyTable(report), HasSubstr("rows ns/row   GB/s %read  +-\n"));
  EXPECT_THAT(FamilyTable(report), HasSubstr("   4     100   1.2    12   2\n"));
}

TEST(BenchReportTest, WhatWasNotMeasuredSaysWhy) {
  FamilyReport report = WeightReport();
  report.cases[1].not_measured = "needs --memory 2.00 GiB";
  EXPECT_THAT(FamilyTable(report), HasSubstr(" 2 needs --memory 2.00 GiB\n"));
  const auto j = nlohmann::json::parse(BenchJson(QuietMachine(), {}, "flash-next", {report}));
  EXPECT_EQ(j["cases"][1]["not_measured"], "needs --memory 2.00 GiB");
  EXPECT_FALSE(j["cases"][1].contains("run_ns"));
}

TEST(BenchReportTest, TablesFitAScreen) {
  FamilyReport report = WeightReport();
  for (const CaseResult& c : WeightReport().cases) {
    report.cases.push_back(WeightCase(c.rows, Residence::kCache, 2));
    report.cases.push_back(WeightCase(c.rows, Residence::kDram, 1));
  }
  for (const std::string& text : {FamilyTable(report), MachineText(QuietMachine())}) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      EXPECT_LE(end - at, 100u) << text.substr(at, end - at);
      at = end + 1;
    }
  }
}

TEST(BenchReportTest, TheMachineComesFirst) {
  const std::string text = MachineText(QuietMachine());
  EXPECT_THAT(text, HasSubstr("Ryzen 9 9950X, 2 CPUs allowed, L1 48.0 KiB, L2 1.00 MiB"));
  EXPECT_THAT(text, HasSubstr("huge pages: madvise, 512 MiB of 512 MiB in use; load average 0.2"));
  EXPECT_THAT(text, HasSubstr("2 workers pinned to CPUs 0-1\n"));
  EXPECT_THAT(text, HasSubstr("read rate of 1 core, GB/s:  L2 100.0\n"));
  EXPECT_THAT(text, HasSubstr("read rate of 2 cores, GB/s:  DRAM 50.0\n"));
}

TEST(BenchReportTest, JsonHasEveryNumberInBaseUnits) {
  KernelBenchOptions options;
  options.case_ns = 5;
  options.memory_bytes = 512_MiB;
  const auto j =
      nlohmann::json::parse(BenchJson(QuietMachine(), options, "flash-next", {WeightReport()}));
  EXPECT_EQ(j["machine"]["cpu"], "Ryzen 9 9950X");
  EXPECT_EQ(j["machine"]["l2_bytes"], 1_MiB);
  EXPECT_EQ(j["machine"]["read_rates"][1]["level"], "DRAM");
  EXPECT_EQ(j["machine"]["read_rates"][1]["bytes_per_sec"], 50e9);
  EXPECT_TRUE(j["machine"]["warnings"].empty());
  EXPECT_EQ(j["settings"]["shape"], "flash-next");
  EXPECT_EQ(j["settings"]["case_ns"], 5);
  EXPECT_EQ(j["settings"]["samples_min"], 11);
  ASSERT_EQ(j["cases"].size(), 4u);
  const auto& c = j["cases"][3];
  EXPECT_EQ(c["kernel"], "expert_down/nvfp4");
  EXPECT_EQ(c["format"], "nvfp4");
  EXPECT_EQ(c["isa"], "avx2");
  EXPECT_EQ(c["rows"], 4);
  EXPECT_EQ(c["threads"], 2);
  EXPECT_EQ(c["residence"], "dram");
  EXPECT_EQ(c["level"], "DRAM");
  EXPECT_EQ(c["samples"], 11);
  EXPECT_EQ(c["run_ns"], 400);
  EXPECT_EQ(c["best_run_ns"], 360);
  EXPECT_EQ(c["row_ns"], 100);
  EXPECT_EQ(c["spread"], 0.02);
  EXPECT_DOUBLE_EQ(c["bytes_per_sec"].get<double>(), 1.25e9);
  EXPECT_DOUBLE_EQ(c["weights_per_sec"].get<double>(), 2.5e9);
  EXPECT_DOUBLE_EQ(c["read_fraction"].get<double>(), 0.125);
}

TEST(BenchReportTest, WarningsNameWhatSpoilsTheNumbers) {
  EXPECT_THAT(BenchWarnings(QuietMachine()), IsEmpty());
  BenchMachine machine = QuietMachine();
  machine.facts.load_average = 3;
  EXPECT_THAT(BenchWarnings(machine), ElementsAre(HasSubstr("load average 3.0 on 2 CPUs")));
  machine = QuietMachine();
  machine.huge_page_bytes = 0;
  EXPECT_THAT(BenchWarnings(machine), ElementsAre(HasSubstr("small pages")));
  machine = QuietMachine();
  machine.facts.caches.l3 = 256_MiB;
  EXPECT_THAT(BenchWarnings(machine), ElementsAre(HasSubstr("--memory 1.00 GiB")));
}

}  // namespace
}  // namespace hearth::cli
