// Which directories hold the limits of a process, and how its small files read.
#include "runtime/base/control_groups.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeCgroupFile {
 public:
  explicit FakeCgroupFile(const std::string& text) : root_(testing::TempDir() + "groups_root") {
    std::filesystem::create_directories(root_ + "/proc/self");
    std::ofstream(root_ + "/proc/self/cgroup") << text;
  }
  ~FakeCgroupFile() { std::filesystem::remove_all(root_); }

  std::vector<std::string> Dirs(const std::string& controller) const {
    std::vector<std::string> dirs;
    for (const ControlGroup& group : ControlGroupsOf(controller, root_)) {
      const std::string version = group.version == GroupVersion::k1 ? "1 " : "2 ";
      dirs.push_back(version + group.dir.substr(root_.size() + 1));
    }
    return dirs;
  }

 private:
  std::string root_;
};

TEST(ControlGroups, OwnGroupComesBeforeItsParents) {
  EXPECT_THAT(FakeCgroupFile("7:memory:/a/b\n").Dirs("memory"),
              ElementsAre("1 sys/fs/cgroup/memory/a/b", "1 sys/fs/cgroup/memory/a",
                          "1 sys/fs/cgroup/memory"));
}

TEST(ControlGroups, BothMountsOfVersion2AreTried) {
  EXPECT_THAT(FakeCgroupFile("0::/a\n").Dirs("cpu"),
              ElementsAre("2 sys/fs/cgroup/a", "2 sys/fs/cgroup", "2 sys/fs/cgroup/unified/a",
                          "2 sys/fs/cgroup/unified"));
}

TEST(ControlGroups, OtherControllersAndBrokenLinesDoNotCount) {
  EXPECT_THAT(FakeCgroupFile("2:cpuacct:/x\n3:cpuset:/y\nbroken\n:\n").Dirs("cpu"), IsEmpty());
  EXPECT_THAT(FakeCgroupFile("").Dirs("cpu"), IsEmpty());
}

TEST(ControlGroups, RootGroupIsTheMountItself) {
  EXPECT_THAT(FakeCgroupFile("1:cpu:/\n").Dirs("cpu"), ElementsAre("1 sys/fs/cgroup/cpu"));
}

TEST(KernelFile, NumbersAreReadFromTheFrontOnly) {
  uint64_t value = 0;
  EXPECT_TRUE(ReadLeadingNumber("12 34", &value));
  EXPECT_EQ(value, 12u);
  for (const char* text : {"", "max", "-1", " 5", "99999999999999999999"}) {
    EXPECT_FALSE(ReadLeadingNumber(text, &value)) << text;
  }
  EXPECT_FALSE(ReadKernelFile("/nonexistent").ok());
  EXPECT_TRUE(ReadKernelFile("/proc/self/status").ok());
}

}  // namespace
}  // namespace hearth
