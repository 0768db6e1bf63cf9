// fp32 activations as int8 in blocks of 32 on a GPU: for weights in Q8 and NVFP4. Arithmetic:
// canonical (cpu_kernels/ops/activation.h): the bits of cpu_kernels.
#pragma once

#include "absl/status/status.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/device/stream.h"

namespace hearth {

// All pointers of `args` are device addresses; x on 4 bytes, q on 4, any number of rows and
// columns. Reads x once. Enqueues and returns; InvalidArgument names what does not fit.
absl::Status LaunchQuantizeRows(const QuantizeRowsArgs& args, CudaStreamView stream);

}  // namespace hearth
