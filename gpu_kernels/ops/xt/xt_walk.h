// The launches of gpu_kernels/ops/xt/expert_xt.h, between its sources. Those that read weights:
// dots of all rows of up to two equally shaped projections of every item.
//
// A step is a pair of blocks (64 columns) of one band: a warp decodes it with half a warp for each
// block and a lane for each row. Steps of an item go over its projections, the groups of a
// projection, the pairs of blocks and the bands of the group; all steps of the list are shared out
// evenly among all warps, as ranges.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/xt/xt_decode_tables.h"
#include "pack/format/xt_layout.h"

namespace hearth {

#ifdef __CUDACC__
// Items of a list: `*count`, or `most` where there is no count, at most `most`.
__device__ inline uint32_t XtItemCount(const uint32_t* count, uint32_t most) {
  return count == nullptr ? most : min(*count, most);
}
#endif

struct XtWalkArgs {
  XtDecodeTables tables;
  const uint32_t* item_count = nullptr;
  uint32_t item_count_max = 0;
  const ExpertFfnItem* items = nullptr;
  const ExpertFfnEntry* entries = nullptr;
  uint32_t rows_max = 0;

  // Of each projection.
  uint32_t rows = 0;  // a multiple of 16: rows and columns of an expert are multiples of 32
  uint32_t cols = 0;
  uint32_t band_count = 0;
  uint32_t block_count = 0;
  uint32_t pair_count = 0;
  uint32_t group_count = 0;
  uint32_t projection_count = 0;
  uint64_t code_offset_bytes[2] = {};
  uint64_t scale_offset_bytes[2] = {};  // of the row scales

  const int8_t* q = nullptr;
  bool rows_are_entries = false;  // row e of q belongs to entry e; else row entries[e].x_row
  // sums[e * sum_stride + projection * sum_projection_stride + row] += dot
  int32_t* sums = nullptr;
  uint32_t sum_stride = 0;
  uint32_t sum_projection_stride = 0;
};

// `blocks` blocks of threads. One source for each number of bits.
absl::Status EnqueueXtWalk2(const XtWalkArgs& args, XtDecodeKind kind, uint32_t blocks,
                            CudaStreamView stream);
absl::Status EnqueueXtWalk3(const XtWalkArgs& args, XtDecodeKind kind, uint32_t blocks,
                            CudaStreamView stream);
absl::Status EnqueueXtWalk4(const XtWalkArgs& args, XtDecodeKind kind, uint32_t blocks,
                            CudaStreamView stream);

// From sums of gate and up to h as XtRows, of the entries of all items.
struct XtHiddenArgs {
  const uint32_t* item_count = nullptr;
  uint32_t item_count_max = 0;
  const ExpertFfnItem* items = nullptr;
  const ExpertFfnEntry* entries = nullptr;
  uint32_t rows_max = 0;
  uint32_t width = 0;
  uint32_t rotation_block = 0;
  float rotation_factor = 0;
  int32_t* sums = nullptr;  // (entries, 2, width), zero afterwards
  const float* x_scale = nullptr;
  const int32_t* x_sum = nullptr;
  uint64_t scale_offset_bytes[2] = {};
  uint64_t multiplier_offset_bytes[2] = {};
  int8_t* q = nullptr;  // (entries, width)
  float* scale = nullptr;
  int32_t* sum = nullptr;
};
absl::Status EnqueueXtHidden(const XtHiddenArgs& args, CudaStreamView stream);

// From sums of down to y[entries[e].y_row], of the entries of all items.
struct XtOutputArgs {
  const uint32_t* item_count = nullptr;
  uint32_t item_count_max = 0;
  const ExpertFfnItem* items = nullptr;
  const ExpertFfnEntry* entries = nullptr;
  uint32_t rows_max = 0;
  uint32_t hidden = 0;
  int32_t* sums = nullptr;         // (entries, hidden), zero afterwards
  const float* h_scale = nullptr;  // (entries)
  const int32_t* h_sum = nullptr;
  uint64_t scale_offset_bytes = 0;
  uint64_t multiplier_offset_bytes = 0;
  float* y = nullptr;
  uint32_t y_stride = 0;
};
absl::Status EnqueueXtOutput(const XtOutputArgs& args, CudaStreamView stream);

}  // namespace hearth
