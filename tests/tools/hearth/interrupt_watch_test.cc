// SIGINT and SIGTERM become a question while they are watched, and end the process as ever after.
#include "tools/hearth/interrupt_watch.h"

#include <pthread.h>
#include <signal.h>

#include "gtest/gtest.h"

namespace hearth::cli {
namespace {

bool IsBlocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

TEST(InterruptWatch, SeesTheSignalsAndRemembersThem) {
  for (const int sent : {SIGINT, SIGTERM}) {
    auto watch = InterruptWatch::Create();
    ASSERT_TRUE(watch.ok()) << watch.status();
    EXPECT_FALSE(watch->Pending());
    pthread_kill(pthread_self(), sent);
    EXPECT_TRUE(watch->Pending());
    EXPECT_TRUE(watch->Pending()) << "still";
  }
}

TEST(InterruptWatch, LeavesTheSignalsAsTheyWere) {
  {
    auto watch = InterruptWatch::Create();
    ASSERT_TRUE(watch.ok()) << watch.status();
    const InterruptWatch moved = *std::move(watch);
    EXPECT_TRUE(IsBlocked(SIGINT));
    EXPECT_TRUE(IsBlocked(SIGTERM));
  }
  EXPECT_FALSE(IsBlocked(SIGINT));
  EXPECT_FALSE(IsBlocked(SIGTERM));
}

}  // namespace
}  // namespace hearth::cli
