// How a piece of memory is cut into blocks: experts of equal blob stride are one class and share
// its blocks; the memory is shared out between the classes in proportion to all their bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/reader/pack.h"
#include "runtime/base/ids.h"

namespace hearth {

// Blocks of a class below which reads and uses would take turns: two in use, two being read.
inline constexpr uint32_t kClassBlocksMin = 4;

struct BlockClass {
  uint64_t block_bytes = 0;      // the blobs' stride: a multiple of 4 KiB
  std::vector<LayerId> layers;   // whose experts it holds
  uint32_t key_count = 0;        // experts of all these layers
  uint32_t block_begin = 0;      // its blocks are numbered [block_begin, block_begin + block_count)
  uint32_t block_count = 0;      // at most key_count
  uint64_t memory_offset_bytes;  // of block_begin
};

struct BlockLayout {
  std::vector<BlockClass> classes;
  std::vector<uint32_t> class_of_layer;
  uint32_t block_count = 0;

  uint64_t bytes() const;
};

// What the least useful tier takes, and one that holds every expert.
uint64_t LeastBlockBytes(const ExpertFile& file);
uint64_t AllBlockBytes(const ExpertFile& file);

// Uses as much of `memory_bytes` as whole blocks can. ResourceExhausted below LeastBlockBytes.
absl::StatusOr<BlockLayout> LayOutBlocks(const ExpertFile& file, uint64_t memory_bytes);

}  // namespace hearth
