#include "tests/support/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> allocation_count{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__)
// Not inlined, so that the compiler does not pair a visible malloc with a delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace hearth {

uint64_t AllocationCount() { return allocation_count.load(); }

}  // namespace hearth
