// How much of a mapping lies in huge pages, and making the rest so. Streaming weights from 4 KiB
// pages costs a walk of the page tables every few hundred nanoseconds, twice as long in a virtual
// machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// Bytes of the mapping that begins at `memory` which are in huge pages, as the kernel reports them
// in `smaps` (the text of /proc/self/smaps); 0 when the mapping is not listed.
uint64_t HugeBytesOf(std::span<const std::byte> memory, std::string_view smaps);

// The same, asking the kernel; 0 when it does not tell.
uint64_t HugeBytesOf(std::span<const std::byte> memory);

// Replaces the pages of `memory` by huge ones, now, whatever the system's setting for new pages is.
// Each 2 MiB needs one page that has been touched. Kernels before 6.1 refuse.
absl::Status CollapseToHugePages(std::span<std::byte> memory);

}  // namespace hearth
