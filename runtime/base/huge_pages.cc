#include "runtime/base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"

#include "runtime/base/control_groups.h"
#include "runtime/base/status.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; missing from the headers of glibc 2.36
#endif

namespace hearth {

uint64_t HugeBytesOf(std::span<const std::byte> memory, std::string_view smaps) {
  // A mapping is a line "start-end perms ...", then lines "Name: value". Neighbours of one kind are
  // merged, so the one that holds `memory` may begin before it.
  const auto wanted = reinterpret_cast<uintptr_t>(memory.data());
  constexpr std::string_view kKey = "AnonHugePages:";
  bool inside = false;
  while (!smaps.empty()) {
    const std::string_view line = smaps.substr(0, smaps.find('\n'));
    smaps.remove_prefix(std::min(smaps.size(), line.size() + 1));
    const size_t dash = line.find('-');
    uint64_t begin = 0, end = 0;
    if (dash != line.npos && ReadHexNumber(line.substr(0, dash), &begin) &&
        ReadHexNumber(line.substr(dash + 1, line.find(' ') - dash - 1), &end)) {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with(kKey)) {
      uint64_t kib = 0;
      const size_t digits = line.find_first_of("0123456789");
      if (digits == line.npos || !ReadLeadingNumber(line.substr(digits), &kib)) return 0;
      return std::min<uint64_t>(kib << 10, memory.size());
    }
  }
  return 0;
}

uint64_t HugeBytesOf(std::span<const std::byte> memory) {
  std::ifstream in("/proc/self/smaps", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return HugeBytesOf(memory, text);
}

absl::Status CollapseToHugePages(std::span<std::byte> memory) {
  if (memory.empty() || ::madvise(memory.data(), memory.size(), MADV_COLLAPSE) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, "huge pages");
}

}  // namespace hearth
