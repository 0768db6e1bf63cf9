// The pass table's host side: segments and rows written down for the card. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "gpu_kernels/ops/pass_table.h"
#include "runtime/backend/cuda/pass_buffers.h"

namespace hearth {

// Writes segments, row segments and the count into `image`. Segments' row_begin is set here, rows
// are numbered across them in order. At most kPassSegmentsMax. Returns the rows of all of them.
uint32_t WritePassTable(std::span<const GpuSegment> segments, const PassImage& image);

// Bytes from the start of the image that a pass of `rows` rows needs on the card, in two pieces:
// the table with the embeddings, and the n-gram embeddings (none: 0).
struct ImageExtent {
  uint64_t head_bytes = 0;
  uint64_t ngram_offset_bytes = 0;
  uint64_t ngram_bytes = 0;
};
ImageExtent ImageExtentOf(const PassImage& image, uint32_t rows, uint32_t hidden,
                          uint32_t embed_dim);

}  // namespace hearth
