// What the launches of the chunked delta rule leave for each other, chunk by chunk, and where it
// lies. Matrices are images: the two bf16 terms of every value, the high ones first, as rows in
// pieces of 16 bytes that are spread over the banks of shared memory, so that an image is copied
// there as it is and tensor cores' operands are read from it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/common/bf16_mma.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"

namespace hearth {

inline constexpr uint32_t kChunkRows = kGdnChunkRows;

struct ChunkPlace {
  uint32_t first_row;  // of the pass
  uint32_t rows;       // 1 to kChunkRows; 0: there is no such chunk
};

// Chunks are numbered through the segments of the pass.
__device__ inline ChunkPlace ChunkAt(const GpuPassTable& pass, uint32_t chunk) {
  const uint32_t segments = *pass.segment_count;
  for (uint32_t s = 0; s < segments; ++s) {
    const GpuSegment& segment = pass.segments[s];
    const uint32_t chunks = (segment.rows + kChunkRows - 1) / kChunkRows;
    if (chunk < chunks) {
      return {segment.row_begin + chunk * kChunkRows,
              min(kChunkRows, segment.rows - chunk * kChunkRows)};
    }
    chunk -= chunks;
  }
  return {0, 0};
}

__device__ inline uint32_t FirstChunkOf(const GpuPassTable& pass, uint32_t segment) {
  uint32_t chunk = 0;
  for (uint32_t s = 0; s < segment; ++s) {
    chunk += (pass.segments[s].rows + kChunkRows - 1) / kChunkRows;
  }
  return chunk;
}

// Byte offset of piece `piece` of row `row`: eight rows that stand beside each other have any one
// piece on different banks. kRowBytes: 64 or a multiple of 128.
template <uint32_t kRowBytes>
__device__ inline uint32_t PieceOffset(uint32_t row, uint32_t piece) {
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0);
  return row * kRowBytes + (piece ^ (kRowBytes == 64 ? row >> 1 & 3u : row & 7u)) * 16;
}

// Of a value head: T, P, then exp(G) and exp(L[last]) of each row.
inline constexpr uint32_t kMatrixRowBytes = kChunkRows * 2;
inline constexpr uint32_t kMatrixTermBytes = kChunkRows * kMatrixRowBytes;
inline constexpr uint32_t kMatrixBytes = 2 * kMatrixTermBytes;
inline constexpr uint32_t kChunkGateBytes = 2 * kChunkRows * sizeof(float);
inline constexpr uint32_t kChunkHeadBytes = 2 * kMatrixBytes + kChunkGateBytes;
// Of a key head: keys, then queries, each of these bytes.
template <uint32_t kKeyDim>
inline constexpr uint32_t kChunkKeysBytes = 2 * kChunkRows* kKeyDim * 2;

struct GdnChunkArgs {
  GpuGdnPromptArgs prompt;
  std::byte* chunks;      // value heads of kChunkHeadBytes, then key heads of 2 * kChunkKeysBytes
  uint32_t stride_bytes;  // of a chunk
};

__device__ inline std::byte* HeadOfChunk(const GdnChunkArgs& args, size_t chunk, uint32_t head) {
  return args.chunks + chunk * args.stride_bytes + size_t{head} * kChunkHeadBytes;
}
template <uint32_t kKeyDim>
__device__ inline std::byte* KeysOfChunk(const GdnChunkArgs& args, size_t chunk,
                                         uint32_t key_head) {
  return HeadOfChunk(args, chunk, args.prompt.shape.value_heads) +
         size_t{key_head} * 2 * kChunkKeysBytes<kKeyDim>;
}

// The walk over the chunks.
absl::Status LaunchGdnScan(const GdnChunkArgs& args, uint32_t segments, CudaStreamView stream);

}  // namespace hearth
