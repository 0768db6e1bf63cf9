// Which processors this process may use, and lists of them as Linux writes them: "0-3,8".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

inline constexpr uint32_t kCpuIdMax = 65535;

// Their ids in rising order, from the affinity mask of the calling thread, so that taskset and
// cpusets count. Empty when the system does not tell.
std::vector<uint32_t> AllowedCpus();

// How many they are; at least 1.
uint32_t AllowedCpuCount();

// Lets the calling thread, and those that it starts from now on, run on `cpus`; an empty list
// changes nothing. An error of the system changes nothing either.
absl::Status AllowCpus(std::span<const uint32_t> cpus);

// "0-3,8" as {0, 1, 2, 3, 8}: in rising order, each once. InvalidArgument names the accepted form.
absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text);

// The shortest list that reads back as `cpus`, which rise.
std::string FormatCpuList(std::span<const uint32_t> cpus);

}  // namespace hearth
