// The kernels of gpu_kernels/ops/xt/xt_walk.h for 2 bits.
#include "gpu_kernels/ops/xt/xt_walk.cuh"

namespace hearth {

absl::Status EnqueueXtWalk2(const XtWalkArgs& args, XtDecodeKind kind, uint32_t blocks,
                            CudaStreamView stream) {
  return EnqueueXtBits<2>(args, kind, blocks, stream);
}

}  // namespace hearth
