// Counts every operator new of a test program that links this in: for tests that a path allocates
// nothing. Under AddressSanitizer, which has an operator new of its own, nothing is counted.
#pragma once

#include <cstdint>

namespace hearth {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCountsAllocations = false;
#else
inline constexpr bool kCountsAllocations = true;
#endif

uint64_t AllocationCount();  // since the program started, from all threads

}  // namespace hearth
