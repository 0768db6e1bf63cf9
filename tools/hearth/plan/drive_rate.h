// How fast a drive hands out experts: reads of one expert's size from all over a file, past the
// page cache where the file system allows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/clock.h"

namespace hearth::cli {

struct DriveRateOptions {
  std::string path;               // a regular file
  uint64_t read_bytes = 4 << 20;  // of one read; rounded up to 4 KiB
  uint32_t in_flight = 16;
  int64_t duration_ns = 700'000'000;  // about
};

struct DriveRate {
  double bytes_per_sec = 0;
  bool direct = false;             // past the page cache; else the rate may be that of RAM
  std::vector<std::string> notes;  // of the reader: fallbacks and their remedies
};

// OutOfRange: the file has less than one read.
absl::StatusOr<DriveRate> MeasureDriveRate(const DriveRateOptions& options, Clock& clock);

}  // namespace hearth::cli
