// Routed NVFP4 experts over the rows of a window: y = down(quantise(silu(gate(x)) * up(x))) for a
// list of experts, each with the rows that chose it. Blobs: pack/format/expert_layout.h.
// Arithmetic: canonical (cpu_kernels/ops/expert.h, activation.h): the bits of cpu_kernels.
//
// Short lists of few rows take one launch: expert_ffn_stream.h. Others two. Gate and up: one block
// of threads computes an even number of 16-row bands of both projections, so that each 32 values of
// h are at hand when they are quantised. Down: one block computes several bands. Four lanes share
// one segment of one band: each loads 16 bytes of either line of a sub-block, which are four weight
// rows, and owns their accumulators; weights are decoded once for all rows of x. Segments meet in
// shared memory and are added in order. Reads every weight once: bandwidth-bound at one row, bound
// by integer instructions at eight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/stream.h"
#include "pack/format/expert_layout.h"

namespace hearth {

inline constexpr uint32_t kExpertRowsMax = 8;  // rows of one expert in one call
inline constexpr uint32_t kExpertItemsMax = 1
                                            << 15;  // below the 65,535 of a grid's second dimension

// What: shapes and bounds. A captured graph keeps them; the lists themselves are read on the
// device.
struct ExpertFfnDesc {
  ExpertLayout layout;       // kNvfp4
  uint32_t item_count = 0;   // most distinct experts, 1 to kExpertItemsMax
  uint32_t rows_max = 0;     // most rows of any expert, 1 to kExpertRowsMax
  uint32_t entry_count = 0;  // most rows of all experts together
  // Whether the plan may choose one launch (expert_ffn_stream.h); its workspace is reset first.
  bool allows_one_launch = false;
};

// How one of the two launches is cut.
struct ExpertFfnCut {
  uint32_t segments = 0;  // of the reduction
  uint32_t bands_per_block = 0;
  uint32_t blocks_per_item = 0;
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
};

// The other form, in one launch (expert_ffn_stream.h): for short lists of few rows.
struct ExpertFfnStreamPlan {
  uint32_t blocks = 0;       // of threads, one for each multiprocessor; 0: two launches
  uint32_t warps = 0;        // of each block that multiply; one more plans their rounds
  uint32_t grain_slots = 0;  // places for the sums of 32 values of h, 1 or 2
  uint32_t shared_bytes = 0;
};

struct ExpertFfnPlan {
  ExpertFfnStreamPlan stream;
  ExpertFfnCut gate_up;
  ExpertFfnCut down;
  uint32_t rows_class = 0;  // 1, 2, 4 or 8: the kernel that is launched
  // Workspace: counters at 0 (ResetExpertFfnWorkspace), then h of every entry, quantised.
  uint64_t h_offset_bytes = 0;
  uint64_t h_scale_offset_bytes = 0;
  uint64_t h_sum_offset_bytes = 0;
  uint64_t workspace_bytes = 0;
};

// One distinct expert; its rows are entries [entry_begin, entry_begin + entry_count).
struct ExpertFfnItem {
  const std::byte* blob;  // device, 64-byte aligned
  uint32_t entry_begin;
  uint32_t entry_count;  // 1 to rows_max
};
static_assert(sizeof(ExpertFfnItem) == 16);

// Reads row `x_row` of x, writes row `y_row` of y: (row, rank) of the window, for the combine.
struct ExpertFfnEntry {
  uint32_t x_row;
  uint32_t y_row;
};
static_assert(sizeof(ExpertFfnEntry) == 8);

// Where: device addresses, valid until the stream has passed the launch.
struct ExpertFfnArgs {
  const ExpertFfnItem* items = nullptr;  // (item_count)
  // How many of `items` there are: a word in device memory, 0 to desc.item_count, read by the
  // kernels. Null: desc.item_count of them.
  const uint32_t* item_count = nullptr;
  const ExpertFfnEntry* entries = nullptr;  // (entry_count)
  const int8_t* q = nullptr;                // x as QuantizedRows: (rows, hidden rounded up to 32)
  const float* scale = nullptr;
  const int32_t* sum16 = nullptr;
  float* y = nullptr;  // (rows of the window * ranks, hidden), row stride y_stride
  uint32_t y_stride = 0;
  std::byte* workspace = nullptr;  // workspace_bytes, 256-byte aligned; see ResetExpertFfnWorkspace
};

// Pure host arithmetic. InvalidArgument names what does not fit.
absl::StatusOr<ExpertFfnPlan> PlanExpertFfn(const ExpertFfnDesc& desc, const GpuLimits& gpu);

// Enqueues what a workspace needs once, before the first launch of a plan that takes one launch;
// the same for all plans.
absl::Status ResetExpertFfnWorkspace(const DeviceBuffer& workspace, CudaStreamView stream);

// Enqueues on `stream` and returns. Launches that share a workspace must not overlap. Unimplemented
// in a build without CUDA.
absl::Status LaunchExpertFfn(const ExpertFfnDesc& desc, const ExpertFfnPlan& plan,
                             const ExpertFfnArgs& args, CudaStreamView stream);

}  // namespace hearth
