// A file of a pack as a list of regions that cover all its bytes, each with the check that applies
// to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"

namespace hearth {

enum class RegionCheck : uint8_t {
  kHashOnly,  // the hash of the whole file is all there is
  kCrc,       // has a checksum of its own
  kZero,      // padding
};

struct FileRegion {
  uint64_t begin_bytes = 0;
  uint64_t end_bytes = 0;
  RegionCheck check = RegionCheck::kHashOnly;
  uint32_t crc32c = 0;
  uint64_t id = 0;  // tensor, expert (layer * experts + expert) or chunk: for the name
};

using RegionNamer = std::function<std::string(const FileRegion&)>;

struct FileRegions {
  RandomAccessFile file;
  std::vector<FileRegion> regions;  // in order, without gaps
  RegionNamer name;                 // of a kCrc region
};

// The regions of "dense.bin", "experts.bin"...; a file of any other name is one kHashOnly region.
// Fails when header or directory are damaged.
absl::StatusOr<FileRegions> MapFile(const std::string& dir, const std::string& name);

struct RegionFault {
  size_t region = 0;
  std::string what;
};
struct RegionScan {
  std::vector<RegionFault> faults;
  std::string xxh3_128;  // of the whole file
};

// Reads the file once, checking regions and hashing on all workers. `progress` gets bytes read so
// far.
absl::StatusOr<RegionScan> ScanRegions(const FileRegions& map, WorkerTeam& team,
                                       const std::function<void(uint64_t)>& progress);

}  // namespace hearth
