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

// Bytes from the start of the image that a pass of `rows` rows needs on the card: the table with
// the embeddings. Those of n-grams go by themselves.
uint64_t ImageHeadBytes(const PassImage& image, uint32_t rows, uint32_t hidden);

}  // namespace hearth
