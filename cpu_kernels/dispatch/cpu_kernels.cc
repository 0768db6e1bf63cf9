#include "cpu_kernels/dispatch/cpu_kernels.h"

#include <array>

#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx512/kernels.h"
#include "cpu_kernels/scalar/kernels.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr CpuKernels kAvx512Row = {
    .isa = Isa::kAvx512,
    .quantize_rows = avx512::QuantizeRows,
    .rotate_quantize_rows = avx512::RotateQuantizeRows,
    .matmul_q8 = avx512::MatmulQ8,
    .matmul_bf16 = avx512::MatmulBf16,
    .matmul_f32 = avx512::MatmulF32,
    .expert_gate_up = avx512::ExpertGateUp,
    .expert_down = avx512::ExpertDown,
    .decode_expert = scalar::DecodeExpert,
    .rms_norm = avx512::RmsNorm,
    .silu = avx512::Silu,
    .sigmoid = avx512::Sigmoid,
    .swiglu = avx512::Swiglu,
    .gate = avx512::Gate,
    .stream_mix = avx512::StreamMix,
    .stream_add = avx512::StreamAdd,
    .combine = avx512::Combine,
    .rotary = avx512::Rotary,
    .conv = avx512::Conv,
    .l2_norm = avx512::L2Norm,
    .gdn_recurrent = avx512::GdnRecurrent,
    .gdn_chunked = avx512::GdnChunked,
    .block_score = avx512::BlockScore,
    .attend = avx512::Attend,
    .top_k = scalar::TopK,
};

// The kernels that byte permutes and bit-matrix multiplies speed up; the others are avx512's.
constexpr CpuKernels Avx512VbmiRow() {
  CpuKernels row = kAvx512Row;
  row.isa = Isa::kAvx512Vbmi;
  row.expert_gate_up = avx512::ExpertGateUpVbmi;
  row.expert_down = avx512::ExpertDownVbmi;
  return row;
}

// Rows are in the order of preference; a kernel that an instruction set lacks is the next row's.
constexpr std::array<CpuKernels, 4> kTable = {{
    Avx512VbmiRow(),
    kAvx512Row,
    {
        .isa = Isa::kAvx2,
        .quantize_rows = avx2::QuantizeRows,
        .rotate_quantize_rows = avx2::RotateQuantizeRows,
        .matmul_q8 = avx2::MatmulQ8,
        .matmul_bf16 = avx2::MatmulBf16,
        .matmul_f32 = avx2::MatmulF32,
        .expert_gate_up = avx2::ExpertGateUp,
        .expert_down = avx2::ExpertDown,
        .decode_expert = scalar::DecodeExpert,
        .rms_norm = avx2::RmsNorm,
        .silu = avx2::Silu,
        .sigmoid = avx2::Sigmoid,
        .swiglu = avx2::Swiglu,
        .gate = avx2::Gate,
        .stream_mix = avx2::StreamMix,
        .stream_add = avx2::StreamAdd,
        .combine = avx2::Combine,
        .rotary = avx2::Rotary,
        .conv = avx2::Conv,
        .l2_norm = avx2::L2Norm,
        .gdn_recurrent = avx2::GdnRecurrent,
        .gdn_chunked = avx2::GdnChunked,
        .block_score = avx2::BlockScore,
        .attend = avx2::Attend,
        .top_k = scalar::TopK,
    },
    {
        .isa = Isa::kScalar,
        .quantize_rows = scalar::QuantizeRows,
        .rotate_quantize_rows = scalar::RotateQuantizeRows,
        .matmul_q8 = scalar::MatmulQ8,
        .matmul_bf16 = scalar::MatmulBf16,
        .matmul_f32 = scalar::MatmulF32,
        .expert_gate_up = scalar::ExpertGateUp,
        .expert_down = scalar::ExpertDown,
        .decode_expert = scalar::DecodeExpert,
        .rms_norm = scalar::RmsNorm,
        .silu = scalar::Silu,
        .sigmoid = scalar::Sigmoid,
        .swiglu = scalar::Swiglu,
        .gate = scalar::Gate,
        .stream_mix = scalar::StreamMix,
        .stream_add = scalar::StreamAdd,
        .combine = scalar::Combine,
        .rotary = scalar::Rotary,
        .conv = scalar::Conv,
        .l2_norm = scalar::L2Norm,
        .gdn_recurrent = scalar::GdnRecurrent,
        .gdn_chunked = scalar::GdnChunked,
        .block_score = scalar::BlockScore,
        .attend = scalar::Attend,
        .top_k = scalar::TopK,
    },
}};

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vbmi:
      return "avx512vbmi";
  }
  HEARTH_CHECK(false);
}

std::span<const CpuKernels> AllCpuKernels() { return kTable; }

bool Supports(const CpuFeatures& have, Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return have.avx2;
    case Isa::kAvx512:
      return have.avx512;
    case Isa::kAvx512Vbmi:
      return have.avx512_vbmi;
  }
  HEARTH_CHECK(false);
}

const CpuKernels& SelectCpuKernels(const CpuFeatures& have) {
  for (const CpuKernels& row : kTable) {
    if (Supports(have, row.isa)) return row;
  }
  HEARTH_CHECK(false);  // every processor runs the scalar row
}

const CpuKernels* FindCpuKernels(std::string_view isa_name) {
  for (const CpuKernels& row : kTable) {
    if (IsaName(row.isa) == isa_name) return &row;
  }
  return nullptr;
}

}  // namespace hearth
