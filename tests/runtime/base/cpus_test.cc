// The count of processors follows the affinity mask.
#include "runtime/base/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace hearth {
namespace {

TEST(AllowedCpuCount, FollowsTheAffinityMask) {
  std::thread([] {  // the mask is the thread's own
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(AllowedCpuCount(), static_cast<uint32_t>(CPU_COUNT(&mask)));
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(AllowedCpuCount(), 1u);
  })
      .join();
}

}  // namespace
}  // namespace hearth
