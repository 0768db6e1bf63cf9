// Limits of control groups in both versions, also on a parent, over a made-up /proc and /sys.
#include "runtime/base/memory_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/units.h"

namespace hearth {
namespace {

class FakeRoot {
 public:
  FakeRoot() : dir_(testing::TempDir() + "memory_limits_root") {
    std::filesystem::remove_all(dir_);
    Write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   16777216 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(dir_); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = std::filesystem::path(dir_) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  MemoryLimit Limit() const {
    const absl::StatusOr<MemoryLimit> limit = AvailableMemory(dir_);
    EXPECT_TRUE(limit.ok()) << limit.status();
    return limit.ok() ? *limit : MemoryLimit{};
  }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

TEST(AvailableMemory, WithoutGroupsItIsWhatTheMachineHas) {
  const FakeRoot root;
  EXPECT_EQ(root.Limit().available_bytes, 16_GiB);
  EXPECT_NE(root.Limit().source.find("meminfo"), std::string::npos);
}

TEST(AvailableMemory, Version2LimitCountsLessItsUse) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/app\n");
  root.Write("sys/fs/cgroup/app/memory.max", "1073741824\n");
  root.Write("sys/fs/cgroup/app/memory.current", "73741824\n");
  EXPECT_EQ(root.Limit().available_bytes, 1000000000u);
  EXPECT_NE(root.Limit().source.find("app/memory.max"), std::string::npos);
}

TEST(AvailableMemory, UnlimitedGroupsDoNotCount) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "4:cpu:/x\n3:memory:/\n0::/app\n");
  root.Write("sys/fs/cgroup/app/memory.max", "max\n");
  root.Write("sys/fs/cgroup/app/memory.current", "5\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(root.Limit().available_bytes, 16_GiB);
}

TEST(AvailableMemory, LimitOfAParentCounts) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "7:memory,hugetlb:/a/b/c\n");
  root.Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n");
  root.Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n");
  root.Write("sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("sys/fs/cgroup/memory/a/b/c/memory.usage_in_bytes", "0\n");
  EXPECT_EQ(root.Limit().available_bytes, 512_MiB);
}

TEST(AvailableMemory, UseBeyondTheLimitLeavesNothing) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("sys/fs/cgroup/memory.max", "100\n");
  root.Write("sys/fs/cgroup/memory.current", "200\n");
  EXPECT_EQ(root.Limit().available_bytes, 0u);
}

TEST(AvailableMemory, ThisMachineHasSome) {
  const absl::StatusOr<MemoryLimit> limit = AvailableMemory();
  ASSERT_TRUE(limit.ok()) << limit.status();
  EXPECT_GT(limit->available_bytes, 16_MiB);
}

TEST(AvailableMemory, NoMeminfoIsAnError) {
  EXPECT_FALSE(AvailableMemory("/nonexistent-root").ok());
}

}  // namespace
}  // namespace hearth
