// Makes a pack of a chosen shape with made-up weights: as fast as a disk takes it, in little
// memory, with no source. It opens, verifies and runs as any other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/convert/expert_writer.h"
#include "pack/format/geometry.h"
#include "pack/format/manifest.h"
#include "pack/synth/synthetic_geometry.h"
#include "pack/writer/pack_directory.h"

namespace hearth {

struct SyntheticPackOptions {
  std::string out;
  SyntheticShape shape;
  uint64_t seed = 1;
  // Experts are zeros in a hole of the file, for who fills memory with others: MadeUpExperts.
  bool zero_experts = false;
  IfExists if_exists = IfExists::kRefuse;
  uint32_t worker_count = 0;  // 0: one per hardware thread, at most 32
  std::string made_by = "hearth";
  // Asked between pieces of a few MiB; true ends the build with Cancelled. Empty: never.
  std::function<bool()> is_cancelled;
};

struct SyntheticPackReport {
  ModelGeometry geometry;
  std::string expert_layout;   // "nvfp4", "xt3"
  uint64_t blob_bytes = 0;     // of one expert of the trunk
  uint64_t experts_bytes = 0;  // of the trunk, padding included
  uint64_t dense_bytes = 0;    // dense.bin
  uint64_t pack_bytes = 0;     // all files but the manifest
  std::vector<PackFile> files;
};

// The bytes do not depend on the number of workers. InvalidArgument as MakeSyntheticGeometry;
// ResourceExhausted, before anything is written, when the disk has too little room. After any error
// nothing of the build remains.
absl::StatusOr<SyntheticPackReport> BuildSyntheticPack(const SyntheticPackOptions& options,
                                                       const BuildProgressFn& progress);

}  // namespace hearth
