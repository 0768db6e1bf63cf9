// Saving a file: all of the new text or all of the old one, and errors that name the folder.
#include "runtime/base/replace_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class ReplaceFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = JoinPath(::testing::TempDir(),
                    std::string("hearth_replace_") + info->name() + std::to_string(::getpid()));
    std::filesystem::create_directory(dir_);
    path_ = JoinPath(dir_, "profile.json");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  size_t FileCount() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_)) ++count;
    return count;
  }

  std::string dir_;
  std::string path_;
};

TEST_F(ReplaceFileTest, HoldsTheLastTextAndNothingLiesBeside) {
  ASSERT_TRUE(ReplaceFile(path_, "first, and longer").ok());
  ASSERT_TRUE(ReplaceFile(path_, "second").ok());
  EXPECT_EQ(*ReadFile(path_, 100), "second");
  ASSERT_TRUE(ReplaceFile(path_, "").ok());
  EXPECT_EQ(*ReadFile(path_, 100), "");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(ReplaceFileTest, KilledMidSaveLeavesTheOldFile) {
  ASSERT_TRUE(ReplaceFile(path_, "old").ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The kernel kills whoever writes past this limit.
    const rlimit limit = {.rlim_cur = 3_MiB, .rlim_max = 3_MiB};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_DFL);
    const absl::Status status = ReplaceFile(path_, std::string(8_MiB, 'n'));
    ::_exit(status.ok() ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGXFSZ) << state;
  EXPECT_EQ(*ReadFile(path_, 100), "old");
  EXPECT_TRUE(FileExists(path_ + ".partial-" + std::to_string(child))) << "it was in the middle";
  EXPECT_TRUE(ReplaceFile(path_, "next").ok());
  EXPECT_EQ(*ReadFile(path_, 100), "next");
}

TEST_F(ReplaceFileTest, FailedSaveKeepsTheOldFileAndCleansUp) {
  ASSERT_TRUE(ReplaceFile(path_, "old").ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit = {.rlim_cur = 3_MiB, .rlim_max = 3_MiB};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);  // writing fails instead
    const absl::Status status = ReplaceFile(path_, std::string(8_MiB, 'n'));
    ::_exit(!status.ok() && status.message().find(dir_) != std::string::npos ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  EXPECT_EQ(*ReadFile(path_, 100), "old");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(ReplaceFileTest, ReadOnlyFolderIsAnErrorThatNamesIt) {
  std::string folder = "/sys/kernel";  // nobody may make files there, not even root
  if (::getuid() != 0) {
    folder = dir_;
    ASSERT_EQ(::chmod(dir_.c_str(), 0555), 0);
  } else if (::access(folder.c_str(), F_OK) != 0) {
    GTEST_SKIP() << "root, and no /sys";
  }
  const absl::Status status = ReplaceFile(JoinPath(folder, "p.json"), "text");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be saved in folder " + folder));
  ::chmod(dir_.c_str(), 0755);
}

TEST_F(ReplaceFileTest, PlacesThatCannotWorkAreRefusedBeforehand) {
  const std::string missing = JoinPath(dir_, "none/p.json");
  EXPECT_EQ(CheckReplaceable(missing).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReplaceFile(missing, "x").message()), HasSubstr(dir_ + "/none"));
  EXPECT_EQ(CheckReplaceable(dir_).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(ReplaceFile(path_, "x").ok());
  EXPECT_FALSE(ReplaceFile(JoinPath(path_, "p.json"), "x").ok()) << "a file is no folder";
  EXPECT_TRUE(CheckReplaceable(path_).ok());
  EXPECT_TRUE(CheckReplaceable("relative.json").ok() || ::access(".", W_OK) != 0);
}

}  // namespace
}  // namespace hearth
