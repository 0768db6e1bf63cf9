#include "runtime/base/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Files of /proc and /sys report a size of zero, so they are read up to a bound.
absl::StatusOr<std::string> ReadKernelFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(64_KiB, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return text;
}

// The number at the front of `text`; false for "max" and anything else.
bool Number(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end != text.data();
}

absl::StatusOr<uint64_t> MemAvailable(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadKernelFile(path));
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) {
    return absl::NotFoundError(absl::StrCat(path, ": no line MemAvailable"));
  }
  const size_t digits = text.find_first_of("0123456789", at);
  uint64_t kib = 0;
  if (digits == std::string::npos || !Number(std::string_view(text).substr(digits), &kib)) {
    return absl::NotFoundError(absl::StrCat(path, ": MemAvailable is not a number"));
  }
  return kib << 10;
}

struct GroupFiles {
  const char* mount;  // below root
  const char* limit;
  const char* usage;
};
constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes"};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current"};

// Lowers `limit` to what the groups from `group` up to the mount's own leave.
void ApplyGroups(const std::string& root, const GroupFiles& files, std::string group,
                 MemoryLimit& limit) {
  const std::string mount = JoinPath(root, files.mount);
  for (;;) {
    const std::string dir = mount + group;
    const std::string limit_path = JoinPath(dir, files.limit);
    const auto limit_text = ReadKernelFile(limit_path);
    const auto usage_text = ReadKernelFile(JoinPath(dir, files.usage));
    uint64_t most = 0, used = 0;
    if (limit_text.ok() && usage_text.ok() && Number(*limit_text, &most) &&
        Number(*usage_text, &used)) {
      const uint64_t left = most > used ? most - used : 0;
      if (left < limit.available_bytes) limit = {.available_bytes = left, .source = limit_path};
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

absl::StatusOr<MemoryLimit> AvailableMemory(const std::string& root) {
  const std::string meminfo = JoinPath(root, "proc/meminfo");
  MemoryLimit limit{.source = meminfo};
  HEARTH_ASSIGN_OR_RETURN(limit.available_bytes, MemAvailable(meminfo));
  // Lines "id:controllers:/path": version 2 has id 0 and no controllers.
  const auto groups = ReadKernelFile(JoinPath(root, "proc/self/cgroup"));
  std::string_view rest = groups.ok() ? std::string_view(*groups) : std::string_view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers =
        absl::StrCat(",", ToAbsl(line.substr(first + 1, second - first - 1)), ",");
    const std::string group(line.substr(second + 1));
    if (controllers == ",,") ApplyGroups(root, kVersion2, group, limit);
    if (controllers.find(",memory,") != std::string::npos) {
      ApplyGroups(root, kVersion1, group, limit);
    }
  }
  return limit;
}

}  // namespace hearth
