// The avx2 row of the kernel table. Contracts: cpu_kernels/ops.
#pragma once

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/attention.h"
#include "cpu_kernels/ops/elementwise.h"
#include "cpu_kernels/ops/expert.h"
#include "cpu_kernels/ops/gdn.h"
#include "cpu_kernels/ops/matmul.h"
#include "cpu_kernels/ops/router.h"
#include "cpu_kernels/ops/xt.h"

namespace hearth::avx2 {

void QuantizeRows(const QuantizeRowsArgs& args);
void RotateQuantizeRows(const RotateQuantizeArgs& args);
void MatmulQ8(const MatmulQ8Args& args);
void MatmulBf16(const MatmulRowsArgs& args);
void MatmulF32(const MatmulRowsArgs& args);
void ExpertGateUp(const ExpertGateUpArgs& args);
void ExpertDown(const ExpertDownArgs& args);
void RmsNorm(const RmsNormArgs& args);
void Silu(const SiluArgs& args);
void Sigmoid(const SigmoidArgs& args);
void Swiglu(const SwigluArgs& args);
void Gate(const GateArgs& args);
void StreamMix(const StreamMixArgs& args);
void StreamAdd(const StreamAddArgs& args);
void Combine(const CombineArgs& args);
void Rotary(const RotaryArgs& args);
void Conv(const ConvArgs& args);
void L2Norm(const L2NormArgs& args);
void GdnRecurrent(const GdnRecurrentArgs& args);
void GdnChunked(const GdnChunkedArgs& args);
void BlockScore(const BlockScoreArgs& args);
void Attend(const AttendArgs& args);

}  // namespace hearth::avx2
