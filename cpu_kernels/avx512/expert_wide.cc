// Routed experts in BF16, FP8 and F32. Contract: cpu_kernels/ops/expert.h; definition:
// cpu_kernels/scalar/expert.cc.
#include "cpu_kernels/avx512/expert_formats.h"
#include "cpu_kernels/avx512/expert_weights_inl.h"

// The shared body takes its registers and weights from the header above.
#include "cpu_kernels/ops/expert_wide_inl.h"

namespace hearth::avx512 {

HEARTH_AVX512 void GateUpWide(const ExpertGateUpArgs& args) {
  switch (args.layout->format) {
    case ExpertFormat::kBf16:
      return RunGateUp<WideFormat<Bf16Weights>>(args);
    case ExpertFormat::kFp8:
      return RunGateUp<WideFormat<Fp8Weights>>(args);
    case ExpertFormat::kF32:
      return RunGateUp<WideFormat<F32Weights>>(args);
    default:  // has kernels of its own
    case ExpertFormat::kXt:
      break;
  }
}

HEARTH_AVX512 void DownWide(const ExpertDownArgs& args) {
  switch (args.layout->format) {
    case ExpertFormat::kBf16:
      return RunDown<WideFormat<Bf16Weights>>(args);
    case ExpertFormat::kFp8:
      return RunDown<WideFormat<Fp8Weights>>(args);
    case ExpertFormat::kF32:
      return RunDown<WideFormat<F32Weights>>(args);
    default:  // has kernels of its own
    case ExpertFormat::kXt:
      break;
  }
}

}  // namespace hearth::avx512
