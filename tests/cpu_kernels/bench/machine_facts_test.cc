// What the benchmark reads of its machine, from files of another one.
#include "cpu_kernels/bench/machine_facts.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "runtime/base/units.h"

namespace hearth {
namespace {

class MachineFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/machine_facts";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void WriteCache(int index, const char* level, const char* type, const char* bytes) {
    const std::string dir = "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    Write(dir + "level", std::string(level) + "\n");
    Write(dir + "type", std::string(type) + "\n");
    Write(dir + "size", std::string(bytes) + "\n");
  }
  std::string root_;
};

TEST_F(MachineFactsTest, ReadsTheFilesOfLinux) {
  Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Ryzen 9 9950X\nmodel name\t: other\n");
  Write("proc/loadavg", "3.25 1.0 0.5 2/100 1234\n");
  Write("proc/self/smaps_rollup", "Rss: 4 kB\nAnonHugePages:   4096 kB\n");
  Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  WriteCache(0, "1", "Data", "48K");
  WriteCache(1, "1", "Instruction", "32K");
  WriteCache(2, "2", "Unified", "1024K");
  WriteCache(3, "3", "Unified", "32M");
  const MachineFacts facts = ReadMachineFacts(root_);
  EXPECT_EQ(facts.cpu_model, "Ryzen 9 9950X");
  EXPECT_EQ(facts.load_average, 3.25);
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_EQ(facts.caches.l1d, 48_KiB);
  EXPECT_EQ(facts.caches.l2, 1_MiB);
  EXPECT_EQ(facts.caches.l3, 32_MiB);
  EXPECT_EQ(HugePageBytesInUse(root_), 4_MiB);
}

TEST_F(MachineFactsTest, WhatIsMissingOrOddStaysEmpty) {
  Write("proc/loadavg", "many\n");
  Write("sys/kernel/mm/transparent_hugepage/enabled", "]odd[");
  WriteCache(0, "1", "Data", "K");
  const MachineFacts facts = ReadMachineFacts(root_);
  EXPECT_EQ(facts.cpu_model, "");
  EXPECT_EQ(facts.load_average, 0);
  EXPECT_EQ(facts.huge_pages, "");
  EXPECT_EQ(facts.caches.l1d, 0u);
  EXPECT_EQ(HugePageBytesInUse(root_), 0u);
}

TEST_F(MachineFactsTest, ThisMachineHasAName) { EXPECT_NE(ReadMachineFacts().cpu_model, ""); }

}  // namespace
}  // namespace hearth
