// The table of CPU kernels: one row per instruction set, chosen once by the program and passed
// down. A kernel is a pure function of its Args: no allocation, lock, log, thread or global.
#pragma once

#include <span>
#include <string_view>

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/attention.h"
#include "cpu_kernels/ops/elementwise.h"
#include "cpu_kernels/ops/expert.h"
#include "cpu_kernels/ops/gdn.h"
#include "cpu_kernels/ops/matmul.h"
#include "cpu_kernels/ops/router.h"
#include "cpu_kernels/ops/xt.h"

namespace hearth {

template <class Fn>
struct Required {  // no default constructor: a row that forgets a kernel does not compile
  constexpr Required(Fn f) : fn(f) {}           // NOLINT: implicit on purpose
  constexpr operator Fn() const { return fn; }  // NOLINT
  Fn fn;
};
template <class Args>
using Kernel = Required<void (*)(const Args&)>;

enum class Isa { kScalar = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Vbmi = 3 };
std::string_view IsaName(Isa isa);  // "scalar", "avx2", "avx512", "avx512vbmi"

struct CpuKernels {
  Isa isa;
  Kernel<QuantizeRowsArgs> quantize_rows;
  Kernel<RotateQuantizeArgs> rotate_quantize_rows;
  Kernel<MatmulQ8Args> matmul_q8;
  Kernel<MatmulRowsArgs> matmul_bf16;
  Kernel<MatmulRowsArgs> matmul_f32;
  Kernel<ExpertGateUpArgs> expert_gate_up;
  Kernel<ExpertDownArgs> expert_down;
  Kernel<DecodeExpertArgs> decode_expert;
  Kernel<RmsNormArgs> rms_norm;
  Kernel<SiluArgs> silu;
  Kernel<SigmoidArgs> sigmoid;
  Kernel<SwigluArgs> swiglu;
  Kernel<GateArgs> gate;
  Kernel<StreamMixArgs> stream_mix;
  Kernel<StreamAddArgs> stream_add;
  Kernel<CombineArgs> combine;
  Kernel<RotaryArgs> rotary;
  Kernel<ConvArgs> conv;
  Kernel<L2NormArgs> l2_norm;
  Kernel<GdnRecurrentArgs> gdn_recurrent;
  Kernel<GdnChunkedArgs> gdn_chunked;
  Kernel<BlockScoreArgs> block_score;
  Kernel<AttendArgs> attend;
  Required<bool (*)(const TopKArgs&)> top_k;
};

struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, DQ, VL and VNNI
  bool avx512_vbmi = false;  // avx512 and VBMI, VBMI2 and GFNI: Ice Lake, Zen 4 and later
};
CpuFeatures DetectCpuFeatures();

// Best first; scalar is last.
std::span<const CpuKernels> AllCpuKernels();
bool Supports(const CpuFeatures& have, Isa isa);
// The best row that `have` can run. Pure.
const CpuKernels& SelectCpuKernels(const CpuFeatures& have);
// The row of that name, or null.
const CpuKernels* FindCpuKernels(std::string_view isa_name);

}  // namespace hearth
