// CPU quotas of control groups in both versions, also on a parent, over a made-up /proc and /sys.
#include "runtime/topology/cpu_quota.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using ::testing::EndsWith;

class FakeRoot {
 public:
  FakeRoot() : dir_(testing::TempDir() + "cpu_quota_root") {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~FakeRoot() { std::filesystem::remove_all(dir_); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = std::filesystem::path(dir_) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void Version1(const std::string& dir, const std::string& quota, const std::string& period) const {
    Write(dir + "/cpu.cfs_quota_us", quota);
    Write(dir + "/cpu.cfs_period_us", period);
  }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

TEST(CpuQuota, WithoutGroupsThereIsNone) {
  const FakeRoot root;
  EXPECT_FALSE(ReadCpuQuota(root.dir()).has_value());
  EXPECT_FALSE(ReadCpuQuota("/nonexistent-root").has_value());
}

TEST(CpuQuota, Version2NamesQuotaAndPeriod) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/app\n");
  root.Write("sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  const auto quota = ReadCpuQuota(root.dir());
  ASSERT_TRUE(quota.has_value());
  EXPECT_DOUBLE_EQ(quota->cpus, 1.5);
  EXPECT_THAT(quota->source, EndsWith("/sys/fs/cgroup/app/cpu.max"));
}

TEST(CpuQuota, Version2WithoutAPeriodHasTheKernelsOwn) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/app\n");
  root.Write("sys/fs/cgroup/app/cpu.max", "400000\n");
  EXPECT_DOUBLE_EQ(ReadCpuQuota(root.dir())->cpus, 4.0);
}

TEST(CpuQuota, UnlimitedGroupsDoNotCount) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "3:cpu,cpuacct:/a\n0::/a\n");
  root.Write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  root.Version1("sys/fs/cgroup/cpu/a", "-1\n", "100000\n");
  EXPECT_FALSE(ReadCpuQuota(root.dir()).has_value());
}

TEST(CpuQuota, SmallestOfNestedGroupsCounts) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/pod/app/worker\n");
  root.Write("sys/fs/cgroup/pod/cpu.max", "200000 100000\n");
  root.Write("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
  root.Write("sys/fs/cgroup/pod/app/worker/cpu.max", "300000 50000\n");
  const auto quota = ReadCpuQuota(root.dir());
  ASSERT_TRUE(quota.has_value());
  EXPECT_DOUBLE_EQ(quota->cpus, 2.0);
  EXPECT_THAT(quota->source, EndsWith("/pod/cpu.max"));
}

TEST(CpuQuota, Version1IsFoundUnderBothNamesOfItsMount) {
  for (const std::string mount : {"cpu", "cpu,cpuacct"}) {
    const FakeRoot root;
    root.Write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n");
    root.Version1("sys/fs/cgroup/" + mount + "/docker", "250000\n", "100000\n");
    root.Version1("sys/fs/cgroup/" + mount + "/docker/abc", "900000\n", "100000\n");
    const auto quota = ReadCpuQuota(root.dir());
    ASSERT_TRUE(quota.has_value()) << mount;
    EXPECT_DOUBLE_EQ(quota->cpus, 2.5);
  }
}

// In a container the path of /proc/self/cgroup is the host's, and what is mounted is its last part.
TEST(CpuQuota, ContainerSeesItsOwnGroupAtTheMount) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "4:cpu:/docker/abc\n");
  root.Version1("sys/fs/cgroup/cpu", "50000\n", "100000\n");
  EXPECT_DOUBLE_EQ(ReadCpuQuota(root.dir())->cpus, 0.5);
}

TEST(CpuQuota, HybridMountOfVersion2IsFound) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "1:cpuset:/\n0::/app\n");
  root.Write("sys/fs/cgroup/unified/app/cpu.max", "100000 100000\n");
  EXPECT_DOUBLE_EQ(ReadCpuQuota(root.dir())->cpus, 1.0);
}

TEST(CpuQuota, FilesThatMakeNoSenseSetNoQuota) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "nonsense\n\n::\n4:cpu:/a\n0::/a\n");
  root.Write("sys/fs/cgroup/a/cpu.max", "0 0\n");
  root.Version1("sys/fs/cgroup/cpu/a", "lots\n", "100000\n");
  root.Version1("sys/fs/cgroup/cpu", "100000\n", "0\n");
  EXPECT_FALSE(ReadCpuQuota(root.dir()).has_value());
}

}  // namespace
}  // namespace hearth
