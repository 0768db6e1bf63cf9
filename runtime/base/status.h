// The two macros that carry absl::Status through a function, and errno as a Status.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

// Debian's Abseil has its own string_view; this is the one place that converts.
inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

// "<what>: <strerror>", with the code that fits: ENOENT is NotFound, ENOMEM is ResourceExhausted...
absl::Status ErrnoStatus(int error_number, std::string_view what);

// The same error with "<context>: " in front of its message.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace hearth

#define HEARTH_RETURN_IF_ERROR(expr)                                           \
  do {                                                                         \
    if (absl::Status hearth_status = (expr); !hearth_status.ok()) [[unlikely]] \
      return hearth_status;                                                    \
  } while (false)

#define HEARTH_CONCAT_INNER_(a, b) a##b
#define HEARTH_CONCAT_(a, b) HEARTH_CONCAT_INNER_(a, b)
#define HEARTH_ASSIGN_OR_RETURN(lhs, expr) \
  HEARTH_ASSIGN_OR_RETURN_IMPL_(HEARTH_CONCAT_(hearth_or_, __LINE__), lhs, expr)
#define HEARTH_ASSIGN_OR_RETURN_IMPL_(or_value, lhs, expr) \
  auto or_value = (expr);                                  \
  if (!or_value.ok()) [[unlikely]]                         \
    return std::move(or_value).status();                   \
  lhs = std::move(or_value).value()
