// One routed expert, by weight format. Contract: cpu_kernels/ops/expert.h.
#include "cpu_kernels/avx2/expert_formats.h"
#include "cpu_kernels/avx2/kernels.h"

namespace hearth::avx2 {

void ExpertGateUp(const ExpertGateUpArgs& args) {
  return args.layout->format == ExpertFormat::kNvfp4 ? GateUpNvfp4(args) : GateUpWide(args);
}

void ExpertDown(const ExpertDownArgs& args) {
  return args.layout->format == ExpertFormat::kNvfp4 ? DownNvfp4(args) : DownWide(args);
}

}  // namespace hearth::avx2
