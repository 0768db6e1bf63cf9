// Routed experts in XT without VBMI and GFNI. Contract: cpu_kernels/ops/xt.h; definition:
// cpu_kernels/scalar/expert_xt.cc.
#include "cpu_kernels/avx512/expert_formats.h"
#include "cpu_kernels/avx512/xt_register_inl.h"

// The shared bodies take their registers from the header above, the second its decoder from the
// first.
#include "cpu_kernels/ops/xt_nibbles_inl.h"

#include "cpu_kernels/ops/expert_xt_inl.h"

namespace hearth::avx512 {

HEARTH_AVX512 void GateUpXt(const ExpertGateUpArgs& args) { RunGateUpXt(args); }
HEARTH_AVX512 void DownXt(const ExpertDownArgs& args) { RunDownXt(args); }

}  // namespace hearth::avx512
