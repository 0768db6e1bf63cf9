#include "runtime/base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Adds `group` and its parents below `mount`, the innermost first.
void AddPath(GroupVersion version, const std::string& mount, std::string group,
             std::vector<ControlGroup>& groups) {
  for (;;) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    groups.push_back({.version = version, .dir = mount + group});
    if (group.empty()) return;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

std::vector<ControlGroup> ControlGroupsOf(std::string_view controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  const std::string mounts = JoinPath(root, "sys/fs/cgroup");
  const std::string wanted = absl::StrCat(",", ToAbsl(controller), ",");
  // Lines "id:controllers:/path": version 2 has no controllers.
  const absl::StatusOr<std::string> text = ReadKernelFile(JoinPath(root, "proc/self/cgroup"));
  std::string_view rest = text.ok() ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string group(line.substr(second + 1));
    if (controllers.empty()) {
      AddPath(GroupVersion::k2, mounts, group, groups);
      AddPath(GroupVersion::k2, JoinPath(mounts, "unified"), group, groups);
    } else if (absl::StrCat(",", controllers, ",").find(wanted) != std::string::npos) {
      // Mounted under its own name or under that of all that share the hierarchy.
      AddPath(GroupVersion::k1, JoinPath(mounts, controller), group, groups);
      if (controllers != controller) {
        AddPath(GroupVersion::k1, JoinPath(mounts, controllers), group, groups);
      }
    }
  }
  return groups;
}

absl::StatusOr<std::string> ReadKernelFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(64_KiB, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return text;
}

bool ReadLeadingNumber(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end != text.data();
}

bool ReadHexNumber(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace hearth
