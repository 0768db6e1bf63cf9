// fp32 activations into the rotated space of XT weights and to int8, one scale for a whole row, on
// a GPU. Arithmetic: canonical (cpu_kernels/ops/xt.h, pack/format/xt_layout.h): the bits of
// cpu_kernels.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "cpu_kernels/ops/xt.h"
#include "gpu_kernels/device/stream.h"

namespace hearth {

inline constexpr uint32_t kRotateQuantizeColsMax = 8192;  // a row stands in shared memory

// All pointers of `args` are device addresses; x on 16 bytes with x_stride a multiple of 4, q on 4;
// `scratch` is not used. cols is a multiple of 32, at most kRotateQuantizeColsMax. One block of
// threads for each row. Enqueues and returns; InvalidArgument names what does not fit.
absl::Status LaunchRotateQuantizeRows(const RotateQuantizeArgs& args, CudaStreamView stream);

}  // namespace hearth
