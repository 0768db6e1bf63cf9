#include "runtime/base/memory_limits.h"

#include <string_view>

#include "absl/strings/str_cat.h"

#include "runtime/base/control_groups.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::StatusOr<uint64_t> MemAvailable(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadKernelFile(path));
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) {
    return absl::NotFoundError(absl::StrCat(path, ": no line MemAvailable"));
  }
  const size_t digits = text.find_first_of("0123456789", at);
  uint64_t kib = 0;
  if (digits == std::string::npos ||
      !ReadLeadingNumber(std::string_view(text).substr(digits), &kib)) {
    return absl::NotFoundError(absl::StrCat(path, ": MemAvailable is not a number"));
  }
  return kib << 10;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current"};

}  // namespace

absl::StatusOr<MemoryLimit> AvailableMemory(const std::string& root) {
  const std::string meminfo = JoinPath(root, "proc/meminfo");
  MemoryLimit limit{.source = meminfo};
  HEARTH_ASSIGN_OR_RETURN(limit.available_bytes, MemAvailable(meminfo));
  for (const ControlGroup& group : ControlGroupsOf("memory", root)) {
    const GroupFiles& files = group.version == GroupVersion::k1 ? kVersion1 : kVersion2;
    const std::string limit_path = JoinPath(group.dir, files.limit);
    const auto limit_text = ReadKernelFile(limit_path);
    const auto usage_text = ReadKernelFile(JoinPath(group.dir, files.usage));
    uint64_t most = 0, used = 0;
    if (!limit_text.ok() || !usage_text.ok() || !ReadLeadingNumber(*limit_text, &most) ||
        !ReadLeadingNumber(*usage_text, &used)) {
      continue;
    }
    const uint64_t left = most > used ? most - used : 0;
    if (left < limit.available_bytes) limit = {.available_bytes = left, .source = limit_path};
  }
  return limit;
}

}  // namespace hearth
