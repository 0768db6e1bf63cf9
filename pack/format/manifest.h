// manifest.json: what a pack is, what it holds and how it was made. FORMAT.md has the schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/format/geometry.h"

namespace hearth {

inline constexpr uint32_t kPackVersion = 1;
inline constexpr uint64_t kManifestBytesMax = 4 << 20;  // a full-size model takes a few KiB

// Values are on disk: append only.
enum class NgramRowFormat : uint32_t { kBf16 = 1, kFp8 = 2, kNvfp4 = 3, kF32 = 4 };

struct PackFile {
  std::string name;  // within the pack directory; no slash
  uint64_t bytes = 0;
  std::string xxh3_128;  // 32 hex digits over the whole file
};

struct Manifest {
  uint32_t version = kPackVersion;
  ModelGeometry geometry;
  std::vector<PackFile> files;     // every file of the pack but manifest.json itself
  std::string source_dialect;      // "bf16", "fp8", "modelopt-nvfp4", "compressed-tensors-nvfp4"
  std::string source_xxh3_128;     // over the source checkpoint's files
  std::string tokenizer_xxh3_128;  // over tokenizer.json: profiles and traces are bound to it
  std::string dense;               // "bf16", "q8_0": what was asked for
  std::string experts;             // "nvfp4", "bf16", "f32"
  std::string made_by;             // "hearth 0.1.0"

  // The text of manifest.json; it ends with a checksum of itself.
  std::string ToJson() const;
  // Refuses unknown versions by number, unknown keys, a wrong self-checksum and an invalid
  // geometry; `path` is for messages.
  static absl::StatusOr<Manifest> FromJson(std::string_view text, const std::string& path);
};

}  // namespace hearth
