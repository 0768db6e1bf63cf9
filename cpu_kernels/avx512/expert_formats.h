// The expert kernels of single weight formats; ExpertGateUp and ExpertDown choose among them.
#pragma once

#include "cpu_kernels/ops/expert.h"

namespace hearth::avx512 {

void GateUpNvfp4(const ExpertGateUpArgs& args);
void DownNvfp4(const ExpertDownArgs& args);
void GateUpWide(const ExpertGateUpArgs& args);  // BF16, FP8, F32
void DownWide(const ExpertDownArgs& args);
void GateUpXt(const ExpertGateUpArgs& args);
void DownXt(const ExpertDownArgs& args);
void GateUpXtVbmi(const ExpertGateUpArgs& args);  // for processors with VBMI and GFNI
void DownXtVbmi(const ExpertDownArgs& args);

}  // namespace hearth::avx512
