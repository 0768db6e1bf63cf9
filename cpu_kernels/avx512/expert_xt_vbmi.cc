// Routed experts in XT for the avx512vbmi tier. Contract: cpu_kernels/ops/xt.h; definition:
// cpu_kernels/scalar/expert_xt.cc.
#include "cpu_kernels/avx512/expert_formats.h"
#include "cpu_kernels/avx512/xt_decoder_vbmi_inl.h"

// The shared body takes its decoder from the header above.
#include "cpu_kernels/ops/expert_xt_inl.h"

namespace hearth::avx512 {

HEARTH_AVX512VBMI void GateUpXtVbmi(const ExpertGateUpArgs& args) { RunGateUpXt(args); }
HEARTH_AVX512VBMI void DownXtVbmi(const ExpertDownArgs& args) { RunDownXt(args); }

}  // namespace hearth::avx512
