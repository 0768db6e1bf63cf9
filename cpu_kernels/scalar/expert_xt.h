// The expert kernels of XT; ExpertGateUp, ExpertDown and DecodeExpert choose among the formats.
#pragma once

#include "cpu_kernels/ops/expert.h"

namespace hearth::scalar {

void GateUpXt(const ExpertGateUpArgs& args);
void DownXt(const ExpertDownArgs& args);
void DecodeXt(const DecodeExpertArgs& args);

}  // namespace hearth::scalar
