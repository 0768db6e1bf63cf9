// A wait ends even when whoever it waits for has no processor of its own.
#include "runtime/base/spin_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace hearth {
namespace {

TEST(SpinWait, LetsMoreThreadsThanProcessorsPassATokenAround) {
  const uint32_t count = std::thread::hardware_concurrency() * 2 + 1;
  std::atomic<uint32_t> token{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      for (uint32_t round = 0; round < 10; ++round) {
        for (SpinWait wait; token.load() != round * count + i;) wait.Pause();
        token.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(token.load(), count * 10);
}

}  // namespace
}  // namespace hearth
