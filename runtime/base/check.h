// HEARTH_CHECK stops the program on a broken invariant, in every build: only our own bug can trip
// it. HEARTH_DCHECK is for inner loops and vanishes with NDEBUG. Bad input is never checked with
// either.
#pragma once

namespace hearth {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace hearth

#define HEARTH_CHECK(condition)                              \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::hearth::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef NDEBUG
#define HEARTH_DCHECK(condition) \
  do {                           \
    (void)sizeof(condition);     \
  } while (false)
#else
#define HEARTH_DCHECK(condition) HEARTH_CHECK(condition)
#endif
