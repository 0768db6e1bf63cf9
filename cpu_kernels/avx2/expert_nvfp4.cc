// Routed experts in NVFP4. Contract: cpu_kernels/ops/expert.h; definition:
// cpu_kernels/scalar/expert.cc.
#include "cpu_kernels/avx2/expert_formats.h"
#include "cpu_kernels/avx2/expert_weights_inl.h"

// The shared body takes its registers and weights from the header above.
#include "cpu_kernels/ops/expert_nvfp4_inl.h"

namespace hearth::avx2 {

HEARTH_AVX2 void GateUpNvfp4(const ExpertGateUpArgs& args) { RunGateUp<Nvfp4Format>(args); }
HEARTH_AVX2 void DownNvfp4(const ExpertDownArgs& args) { RunDown<Nvfp4Format>(args); }

}  // namespace hearth::avx2
