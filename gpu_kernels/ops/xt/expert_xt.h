// Routed XT experts over the rows of a window: y = down(rotate_quantise(silu(gate(x)) * up(x))) for
// a list of experts, each with the rows that chose it. Blobs: pack/format/expert_layout.h, XT:
// pack/format/xt_layout.h and xt_code.h. Arithmetic: canonical (cpu_kernels/ops/xt.h, expert.h):
// the bits of cpu_kernels.
//
// Four steps. Gate and up: every warp takes an equal share of all chunks of the list, decodes each
// once for all rows of x and adds its int32 dots to sums in the workspace; the dots are exact, so
// the order and the cut do not matter. Hidden: one block of threads for each entry turns the sums
// into h, rotates and quantises it. Down: as gate and up. Output: sums to y. The steps that read
// sums leave them at zero for the next call.
// Bound by integer instructions and shared memory (gpu_kernels/ops/xt/BENCHMARKS.md).
//
// How many experts there are is read from device memory, so that one captured graph serves every
// list; the host knows bounds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/xt/xt_decode_tables.h"
#include "pack/format/expert_layout.h"

namespace hearth {

// What: shapes and bounds. A captured graph keeps them; the lists themselves are read on the
// device.
struct ExpertXtDesc {
  ExpertLayout layout;           // kXt, any bits for each projection
  uint32_t item_count_max = 0;   // distinct experts, 1 to kExpertItemsMax
  uint32_t rows_max = 0;         // most rows of any expert, 1 to kExpertRowsMax
  uint32_t entry_count_max = 0;  // rows of all experts together
};

// How the launches are cut, and the parts of the workspace.
struct ExpertXtPlan {
  uint32_t block_count = 0;   // of the gate and up and of the down launches: one per multiprocessor
  uint32_t shared_bytes = 0;  // decoding tables of a block
  XtDecodeKind kind = XtDecodeKind::kSplit;  // by how much shared memory there is
  // int32: gate and up sums (entry_count_max, 2, width) at 0, then those of down
  // (entry_count_max, hidden).
  uint64_t down_sum_offset_bytes = 0;
  // h of every entry as XtRows.
  uint64_t h_q_offset_bytes = 0;
  uint64_t h_scale_offset_bytes = 0;
  uint64_t h_sum_offset_bytes = 0;
  uint64_t workspace_bytes = 0;
};

// Where: device addresses, valid until the stream has passed the launch.
struct ExpertXtArgs {
  // How many of `items` there are: a word in device memory, read by the kernels; more than
  // desc.item_count_max counts as that. Null: desc.item_count_max of them.
  const uint32_t* item_count = nullptr;
  const ExpertFfnItem* items = nullptr;     // (item_count); blobs 64-byte aligned
  const ExpertFfnEntry* entries = nullptr;  // (entry_count_max)
  const int8_t* q = nullptr;                // x as XtRows: (rows, hidden), 16-byte aligned
  const float* scale = nullptr;
  const int32_t* sum = nullptr;
  float* y = nullptr;  // (rows of the window * ranks, hidden), row stride y_stride
  uint32_t y_stride = 0;
  std::byte* workspace = nullptr;  // workspace_bytes, 256-byte aligned; see ResetExpertXtWorkspace
};

// Pure host arithmetic. InvalidArgument names what does not fit.
absl::StatusOr<ExpertXtPlan> PlanExpertXt(const ExpertXtDesc& desc, const GpuLimits& gpu);

// Enqueues what a workspace needs once, before its first launch, and again after a launch that
// failed.
absl::Status ResetExpertXtWorkspace(const ExpertXtPlan& plan, const DeviceBuffer& workspace,
                                    uint64_t offset_bytes, CudaStreamView stream);

// Enqueues on `stream` and returns. Launches that share a workspace must not overlap. Rows of an
// item beyond rows_max are left out.
absl::Status LaunchExpertXt(const ExpertXtDesc& desc, const ExpertXtPlan& plan,
                            const ExpertXtArgs& args, CudaStreamView stream);

}  // namespace hearth
