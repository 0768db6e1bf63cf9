// The control groups that this process lies in, in both versions, and their small files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth {

enum class GroupVersion { k1, k2 };

struct ControlGroup {
  GroupVersion version = GroupVersion::k2;
  std::string dir;  // where its files lie
};

// Every group whose limits of `controller` ("memory", "cpu") bind this process: its own and all
// parents, in both versions. A container sees only the lower end of its path, so a directory that
// is listed need not exist. Files are read below `root` ("/" but for tests).
std::vector<ControlGroup> ControlGroupsOf(std::string_view controller, const std::string& root);

// A file of /proc or /sys, whose size reads as zero; at most 64 KiB of it.
absl::StatusOr<std::string> ReadKernelFile(const std::string& path);

// The number at the front of `text`; false for "max", "-1" and anything else.
bool ReadLeadingNumber(std::string_view text, uint64_t* value);

// `text` as a hexadecimal number, whole.
bool ReadHexNumber(std::string_view text, uint64_t* value);

}  // namespace hearth
