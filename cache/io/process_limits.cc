#include "cache/io/process_limits.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using Resource = decltype(RLIMIT_NOFILE);

uint64_t ToCount(rlim_t value) { return value == RLIM_INFINITY ? UINT64_MAX : value; }

LimitValues Values(Resource resource) {
  struct rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0) return {};
  return {.soft = ToCount(limit.rlim_cur), .hard = ToCount(limit.rlim_max)};
}

bool Raise(Resource resource) {
  struct rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(resource, &limit) == 0;
}

}  // namespace

LimitValues LockedMemoryLimit() { return Values(RLIMIT_MEMLOCK); }
LimitValues DescriptorLimit() { return Values(RLIMIT_NOFILE); }
bool RaiseLockedMemoryLimit() { return Raise(RLIMIT_MEMLOCK); }
bool RaiseDescriptorLimit() { return Raise(RLIMIT_NOFILE); }

std::string FormatLimitBytes(uint64_t bytes) {
  return bytes == UINT64_MAX ? "no limit" : FormatBytes(bytes);
}

absl::Status DescriptorLimitError(std::string_view what) {
  const LimitValues limit = DescriptorLimit();
  return absl::ResourceExhaustedError(
      absl::StrCat(ToAbsl(what), ": no free file descriptor: RLIMIT_NOFILE is ", limit.soft,
                   " (hard limit ", limit.hard, "); raise it with ulimit -n or LimitNOFILE="));
}

}  // namespace hearth
