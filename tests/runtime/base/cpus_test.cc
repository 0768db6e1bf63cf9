// The allowed processors follow the affinity mask; lists of them read and print as Linux writes
// them.
#include "runtime/base/cpus.h"

#include <sched.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AllowedCpus, FollowTheAffinityMask) {
  std::thread([] {  // the mask is the thread's own
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(AllowedCpus().size(), static_cast<size_t>(CPU_COUNT(&mask)));
    EXPECT_EQ(AllowedCpuCount(), static_cast<uint32_t>(CPU_COUNT(&mask)));
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &mask)) --last;
    CPU_ZERO(&mask);
    CPU_SET(last, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_THAT(AllowedCpus(), ElementsAre(static_cast<uint32_t>(last)));
    EXPECT_EQ(AllowedCpuCount(), 1u);
  })
      .join();
}

TEST(CpuList, RangesAndNumbersMakeOneRisingList) {
  EXPECT_THAT(*ParseCpuList("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*ParseCpuList("5"), ElementsAre(5));
  EXPECT_THAT(*ParseCpuList("9,2,3-4,3"), ElementsAre(2, 3, 4, 9));
  EXPECT_THAT(*ParseCpuList("65535"), ElementsAre(kCpuIdMax));
}

TEST(CpuList, AnythingElseIsRefusedWithTheAcceptedForm) {
  for (const char* text : {"", ",", "1,", ",1", "1-", "-1", "3-1", "1--2", "a", "1 ,2", "1;2",
                           "0x1", "65536", "0-65536", "99999999999"}) {
    const absl::Status status = ParseCpuList(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("such as 0-3,8")) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("'") + text)) << text;
  }
}

TEST(CpuList, ManyRepeatedRangesAreRefusedRatherThanStored) {
  std::string text = "0-65535";
  for (int i = 0; i < 100; ++i) text += ",0-65535";
  EXPECT_FALSE(ParseCpuList(text).ok());
}

TEST(CpuList, PrintsTheShortestForm) {
  for (const char* text : {"", "7", "0-3,8", "0,2,4", "1-2,64-127"}) {
    const auto cpus = *text == '\0' ? std::vector<uint32_t>() : *ParseCpuList(text);
    EXPECT_EQ(FormatCpuList(cpus), text);
  }
}

}  // namespace
}  // namespace hearth
