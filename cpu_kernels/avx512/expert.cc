// One routed expert, by weight format. Contract: cpu_kernels/ops/expert.h.
#include "cpu_kernels/avx512/expert_formats.h"
#include "cpu_kernels/avx512/kernels.h"

namespace hearth::avx512 {

namespace {

// Every format but XT.
void GateUpOther(const ExpertGateUpArgs& args) {
  return args.layout->format == ExpertFormat::kNvfp4 ? GateUpNvfp4(args) : GateUpWide(args);
}
void DownOther(const ExpertDownArgs& args) {
  return args.layout->format == ExpertFormat::kNvfp4 ? DownNvfp4(args) : DownWide(args);
}

}  // namespace

void ExpertGateUp(const ExpertGateUpArgs& args) {
  return args.layout->format == ExpertFormat::kXt ? GateUpXt(args) : GateUpOther(args);
}

void ExpertDown(const ExpertDownArgs& args) {
  return args.layout->format == ExpertFormat::kXt ? DownXt(args) : DownOther(args);
}

void ExpertGateUpVbmi(const ExpertGateUpArgs& args) {
  return args.layout->format == ExpertFormat::kXt ? GateUpXtVbmi(args) : GateUpOther(args);
}

void ExpertDownVbmi(const ExpertDownArgs& args) {
  return args.layout->format == ExpertFormat::kXt ? DownXtVbmi(args) : DownOther(args);
}

}  // namespace hearth::avx512
