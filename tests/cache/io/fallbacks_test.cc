// Every step down from io_uring with registered buffers and direct reads: the bytes stay the same
// and one line says why, what was needed and what helps. The limits are put on a program of its own
// (restricted_reader), since they cannot be taken back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "cache/io/direct_file.h"
#include "cache/io/pread_reader.h"
#include "cache/io/process_limits.h"
#include "cache/io/uring_ring.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "tests/cache/io/reader_testing.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

struct Report {
  int exit_code = -1;
  std::vector<std::string> readers;  // "uring direct registered"
  std::vector<std::string> notes;
  std::string error;
};

class FallbacksTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { file_ = new RandomFile("fallbacks", 201 * kBlockBytes + 9000); }
  static void TearDownTestSuite() { delete file_; }

  static Report RunRestricted(const std::vector<std::string>& settings) {
    const std::string report_path = file_->path() + "_report";
    std::vector<std::string> words = {HEARTH_RESTRICTED_READER, file_->path(), report_path};
    words.insert(words.end(), settings.begin(), settings.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::chmod(file_->path().c_str(), 0644);
    pid_t pid = 0;
    Report report;
    if (::posix_spawn(&pid, words[0].c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
      ADD_FAILURE() << "cannot start " << words[0];
      return report;
    }
    int state = 0;
    while (::waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    report.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    const auto text = ReadFile(report_path, 1 << 20);
    std::remove(report_path.c_str());
    if (!text.ok()) return report;
    for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> fact =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      if (fact.first == "reader") report.readers.push_back(fact.second);
      if (fact.first == "note") report.notes.push_back(fact.second);
      if (fact.first == "error") report.error = fact.second;
    }
    return report;
  }

  static inline RandomFile* file_ = nullptr;
};

// UBSan looks whether memory is readable through a pipe, and reports a wrong type without one.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

std::string Refuse(int error_number) { return absl::StrCat("refuse=", error_number); }

TEST_F(FallbacksTest, WithoutRestrictionsItIsUringWithRegisteredBuffers) {
  const Report report = RunRestricted({});
  EXPECT_EQ(report.exit_code, 0) << report.error;
  EXPECT_THAT(report.readers, ElementsAre("uring direct registered"));
  EXPECT_THAT(report.notes, IsEmpty());
}

TEST_F(FallbacksTest, ARefusalAtAnyMomentGivesWayToPreadWithOneLine) {
  for (const std::string when : {"start", "opened", "reading"}) {
    for (const int error_number : {EPERM, ENOSYS}) {
      const Report report = RunRestricted({"when=" + when, Refuse(error_number)});
      SCOPED_TRACE(absl::StrCat(when, " ", error_number));
      EXPECT_EQ(report.exit_code, 0) << report.error;
      EXPECT_THAT(report.readers, ElementsAre("pread direct unregistered"));
      ASSERT_EQ(report.notes.size(), 1u);
      EXPECT_THAT(report.notes[0], AllOf(StartsWith(file_->path() + ": read by 4 pread threads: "),
                                         HasSubstr("io_uring is not"), HasSubstr("seccomp")));
    }
  }
}

TEST_F(FallbacksTest, UringByNameFailsWithTheReasonInstead) {
  for (const std::string when : {"start", "opened", "reading"}) {
    for (const int error_number : {EPERM, ENOSYS}) {
      const Report report = RunRestricted({"io=uring", "when=" + when, Refuse(error_number)});
      SCOPED_TRACE(absl::StrCat(when, " ", error_number));
      EXPECT_EQ(report.exit_code, 1);
      EXPECT_THAT(report.error, AllOf(StartsWith("FAILED_PRECONDITION"), HasSubstr("seccomp")));
    }
  }
}

TEST_F(FallbacksTest, PreadByNameNeedsNoUring) {
  const Report report = RunRestricted({"io=pread", "when=start", Refuse(EPERM)});
  EXPECT_EQ(report.exit_code, 0) << report.error;
  EXPECT_THAT(report.readers, ElementsAre("pread direct unregistered"));
  EXPECT_THAT(report.notes, IsEmpty());
}

TEST_F(FallbacksTest, LockedMemoryThatDoesNotSufficeMeansUnregisteredBuffers) {
  if (::getuid() != 0) GTEST_SKIP() << "becomes another user, which takes root";
  for (const std::string limit : {"65536:65536", "8388608:8388608"}) {
    const Report report = RunRestricted({"uid=65534", "memlock=" + limit, "buffers=16777216"});
    SCOPED_TRACE(limit);
    EXPECT_EQ(report.exit_code, 0) << report.error;
    EXPECT_THAT(report.readers, ElementsAre("uring direct unregistered"));
    ASSERT_EQ(report.notes.size(), 1u);
    EXPECT_THAT(report.notes[0],
                AllOf(StartsWith(file_->path()), HasSubstr("16.0 MiB must be locked"),
                      HasSubstr("RLIMIT_MEMLOCK is "), HasSubstr("LimitMEMLOCK=")));
  }
}

TEST_F(FallbacksTest, NoLockedMemoryAtAllMeansPreadAndNamesTheLimit) {
  if (::getuid() != 0) GTEST_SKIP() << "becomes another user, which takes root";
  const Report report = RunRestricted({"uid=65534", "memlock=0:0"});
  EXPECT_EQ(report.exit_code, 0) << report.error;
  // Kernels before 5.12 count the ring's own memory, and some later ones do again.
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("RLIMIT_MEMLOCK is 0 B (hard limit 0 B)"));
}

TEST_F(FallbacksTest, TheSoftLimitOfLockedMemoryIsRaisedToTheHardOne) {
  if (::getuid() != 0) GTEST_SKIP() << "becomes another user, which takes root";
  const Report report = RunRestricted({"uid=65534", "memlock=65536:8388608", "buffers=4194304"});
  EXPECT_EQ(report.exit_code, 0) << report.error;
  EXPECT_THAT(report.readers, ElementsAre("uring direct registered"));
  EXPECT_THAT(report.notes, IsEmpty());
}

TEST_F(FallbacksTest, LockedMemoryIsGivenBackWithTheReader) {
  if (::getuid() != 0) GTEST_SKIP() << "becomes another user, which takes root";
  // Room for one reader's buffers and not for two.
  const Report report =
      RunRestricted({"uid=65534", "memlock=6291456:6291456", "buffers=4194304", "cycles=40"});
  EXPECT_EQ(report.exit_code, 0) << report.error;
  EXPECT_THAT(report.readers, AllOf(testing::SizeIs(40), testing::Each("uring direct registered")));
}

TEST_F(FallbacksTest, TooFewDescriptorsForARingMeanPreadAndNameTheLimit) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  const Report report = RunRestricted({"files=1:1"});
  EXPECT_EQ(report.exit_code, 0) << report.error;
  EXPECT_THAT(report.readers, ElementsAre("pread direct unregistered"));
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], AllOf(HasSubstr("RLIMIT_NOFILE is"), HasSubstr("ulimit -n")));
}

TEST_F(FallbacksTest, NoDescriptorForTheFileIsAnErrorThatNamesTheLimit) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  const Report report = RunRestricted({"files=0:0"});
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_THAT(report.error, AllOf(StartsWith("RESOURCE_EXHAUSTED: " + file_->path()),
                                  HasSubstr("RLIMIT_NOFILE is")));
}

TEST_F(FallbacksTest, TheSoftLimitOfDescriptorsIsRaisedToTheHardOne) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  for (const std::string limit : {"0:9", "1:9", "2:9"}) {
    const Report report = RunRestricted({"files=" + limit});
    EXPECT_EQ(report.exit_code, 0) << limit << report.error;
    EXPECT_THAT(report.readers, ElementsAre("uring direct registered")) << limit;
  }
}

TEST(UringRefusalTest, TheSysctlIsNamedWithItsValue) {
  const std::string by_sysctl(UringRefusal(EPERM, "2\n").message());
  EXPECT_THAT(by_sysctl, AllOf(HasSubstr("kernel.io_uring_disabled is 2, 0 is needed"),
                               HasSubstr("sysctl -w")));
  EXPECT_THAT(std::string(UringRefusal(EPERM, "0\n").message()), HasSubstr("seccomp"));
  EXPECT_THAT(std::string(UringRefusal(EPERM, "").message()), HasSubstr("seccomp"));
  EXPECT_THAT(std::string(UringRefusal(ENOSYS, "").message()), HasSubstr("Linux 5.11"));
}

TEST(UringRefusalTest, LimitsAreNamedWithTheirValues) {
  EXPECT_EQ(UringRefusal(ENOMEM, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(UringRefusal(ENOMEM, "").message()), HasSubstr("RLIMIT_MEMLOCK is"));
  EXPECT_THAT(std::string(UringRefusal(EMFILE, "").message()), HasSubstr("RLIMIT_NOFILE is"));
}

TEST(ProcessLimitsTest, NoLimitIsSaidInWords) {
  EXPECT_EQ(FormatLimitBytes(UINT64_MAX), "no limit");
  EXPECT_EQ(FormatLimitBytes(8 << 20), "8.00 MiB");
}

TEST(DirectDemandTest, WhatTheFileSystemAsksForIsComparedWithTheCallersAlignment) {
  EXPECT_EQ(WhyNotDirect({.known = false}, kBlockBytes), "");
  const auto ask = [](uint64_t memory_bytes, uint64_t offset_bytes) {
    return WhyNotDirect({.known = true,
                         .allowed = true,
                         .memory_bytes = memory_bytes,
                         .offset_bytes = offset_bytes},
                        kBlockBytes);
  };
  EXPECT_EQ(ask(512, 512), "");
  EXPECT_EQ(ask(4, 4096), "");
  EXPECT_THAT(ask(512, 16384), HasSubstr("multiples of 16384 bytes, ours are multiples of 4096"));
  EXPECT_THAT(ask(65536, 512), HasSubstr("multiples of 65536"));
  EXPECT_THAT(WhyNotDirect({.known = true, .allowed = false}, kBlockBytes),
              HasSubstr("does not offer direct reads"));
}

TEST(DirectFileTest, AFileWhoseDirectReadsAreFinerThanTheCallersIsDirect) {
  const RandomFile file("aligned", 3 * kBlockBytes + 9000);
  EXPECT_TRUE((*DirectFile::Open(file.path(), true, kBlockBytes))->direct());
  EXPECT_FALSE((*DirectFile::Open(file.path(), false, kBlockBytes))->direct());
}

TEST(DirectFileTest, ACallerFinerThanTheFileReadsThroughThePageCacheWithOneLine) {
  const RandomFile file("odd", 3 * kBlockBytes + 9000);
  const auto opened = *DirectFile::Open(file.path(), true, 1);
  EXPECT_FALSE(opened->direct());
  EXPECT_THAT(opened->Note(), AllOf(StartsWith(file.path() + ": read through the page cache"),
                                    HasSubstr("; put the file on")));
}

class PreadFaultsTest : public testing::Test {
 protected:
  PreadFaultsTest()
      : file_("pread_faults", 33 * kBlockBytes + 9000),
        memory_(*AnonymousMapping::Create(64 * kBlockBytes)) {}

  std::unique_ptr<Reader> Make(ReadAttempt attempt) {
    std::shared_ptr<DirectFile> file = *DirectFile::Open(file_.path(), true, kBlockBytes);
    return MakePreadReader(std::move(file), {.attempt = std::move(attempt), .clock = clock_});
  }
  int64_t Copy(uint64_t offset_bytes, std::span<std::byte> into) const {
    const ReadRequest request = {.offset_bytes = offset_bytes, .into = into};
    const auto want = Wanted(file_.bytes(), request);
    std::ranges::copy(want, into.begin());
    return static_cast<int64_t>(want.size());
  }
  std::vector<ReadRequest> Whole() {
    std::vector<ReadRequest> requests;
    const uint64_t end = RoundUpToBlock(file_.bytes().size());
    for (uint64_t begin = 0; begin < end; begin += 3 * kBlockBytes) {
      const uint64_t length = std::min<uint64_t>(3 * kBlockBytes, end - begin);
      requests.push_back({begin, memory_.data().subspan(begin, length), requests.size()});
    }
    return requests;
  }

  SteadyClock clock_;
  RandomFile file_;
  AnonymousMapping memory_;
};

TEST_F(PreadFaultsTest, AFileThatGivesAtMostABlockPerReadIsReadWhole) {
  const auto reader = Make([&](uint64_t offset_bytes, std::span<std::byte> into) {
    return Copy(offset_bytes, into.first(std::min<size_t>(into.size(), kBlockBytes)));
  });
  ExpectAllRead(*reader, file_.bytes(), Whole());
  EXPECT_TRUE(reader->traits().direct);
}

TEST_F(PreadFaultsTest, DirectReadsRefusedAtTheFirstReadGoOnBufferedWithOneLine) {
  std::atomic<int> refused_count = 0;
  const auto reader = Make([&](uint64_t offset_bytes, std::span<std::byte> into) -> int64_t {
    if (refused_count.fetch_add(1) < 1) return -EINVAL;
    return Copy(offset_bytes, into);
  });
  EXPECT_TRUE(reader->traits().direct);
  ExpectAllRead(*reader, file_.bytes(), Whole());
  EXPECT_FALSE(reader->traits().direct);
  EXPECT_EQ(reader->traits().align_bytes, 1u);
  ASSERT_EQ(reader->traits().notes.size(), 1u);
  EXPECT_THAT(reader->traits().notes[0], HasSubstr("a direct read was refused with EINVAL"));
}

TEST_F(PreadFaultsTest, AFileThatRefusesEveryReadFailsAndIsNotAskedForEver) {
  std::atomic<int> asked_count = 0;
  const auto reader = Make([&](uint64_t, std::span<std::byte>) -> int64_t {
    ++asked_count;
    return -EINVAL;
  });
  const auto requests = Whole();
  for (const absl::Status& status : RunAll(*reader, requests).statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_LE(asked_count.load(), static_cast<int>(2 * requests.size()));
}

TEST_F(PreadFaultsTest, OneBadBlockFailsItsRequestsOnly) {
  constexpr uint64_t kBadOffset = 10 * kBlockBytes;
  const auto reader = Make([&](uint64_t offset_bytes, std::span<std::byte> into) -> int64_t {
    if (offset_bytes <= kBadOffset && kBadOffset < offset_bytes + into.size()) {
      if (offset_bytes == kBadOffset) return -EIO;
      return Copy(offset_bytes, into.first(kBadOffset - offset_bytes));
    }
    return Copy(offset_bytes, into);
  });
  const auto requests = Whole();
  const RunResult result = RunAll(*reader, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i == 3) {
      EXPECT_EQ(result.statuses[i].message(),
                absl::StrCat(file_.path(),
                             ": read at 36864: wanted 12288 bytes, got 4096: Input/output error"));
    } else {
      EXPECT_TRUE(result.statuses[i].ok()) << result.statuses[i];
    }
  }
}

TEST_F(PreadFaultsTest, InterruptionsAreRepeated) {
  std::atomic<int> count = 0;
  const auto reader = Make([&](uint64_t offset_bytes, std::span<std::byte> into) -> int64_t {
    const int n = count.fetch_add(1);
    if (n % 3 == 0) return -EINTR;
    if (n % 3 == 1) return -EAGAIN;
    return Copy(offset_bytes, into);
  });
  ExpectAllRead(*reader, file_.bytes(), Whole());
}

}  // namespace
}  // namespace hearth
