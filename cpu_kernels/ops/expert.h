// One routed expert over the rows of a window that chose it. Blob layouts:
// pack/format/expert_layout.h. Canonical arithmetic: the same bits from every instruction set and,
// later, from the GPU.
//
// A reduction of length K runs in segments of 320 values; each segment has one accumulator that
// starts at zero; the total is segment 0, plus segment 1, plus segment 2, ... in order, by fp32
// addition.
//   NVFP4: within a segment, sub-blocks of 16 in order:
//       acc = fma(x_scale * w_scale, float(int32 dot of doubled codes and q), acc)
//     where w_scale = E4M3 block scale / 2 (exact; the doubling is undone there; the bytes 0 to
//     0x7E, which is all that a pack may hold). The total is then multiplied by the projection's
//     fp32 multiplier.
//   BF16, FP8, F32: w decoded to fp32 (FP8: code * block scale, one fp32 multiply); k in order:
//       acc = fma(w, x, acc)
//   XT: no segments: cpu_kernels/ops/xt.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/xt.h"
#include "pack/format/expert_layout.h"

namespace hearth {

inline constexpr uint32_t kSegmentValues = 320;

// h[t][i] = silu(gate_i . x_t) * (up_i . x_t) for bands [band_begin, band_end) of the expert width.
// silu(v) = v * sigmoid(v) with the sigmoid of ops/elementwise.h.
struct ExpertGateUpArgs {
  const ExpertLayout* layout = nullptr;
  const std::byte* blob = nullptr;
  QuantizedRows xq;          // kNvfp4 reads this...
  const float* x = nullptr;  // ...the others this: (rows, hidden), row stride x_stride
  uint32_t x_stride = 0;
  uint32_t rows = 0;
  float* h = nullptr;  // (rows, width), row stride h_stride
  uint32_t h_stride = 0;
  uint32_t band_begin = 0;
  uint32_t band_end = 0;
  // Weights that the caller uses next, or null: the kernel asks for their first KiBs while it reads
  // its last bands. Results do not depend on it; it may be any address.
  const std::byte* read_ahead = nullptr;
  XtRows xt{};  // kXt reads this instead
};

// y[t][n] = down_n . h_t for bands [band_begin, band_end) of the hidden size.
struct ExpertDownArgs {
  const ExpertLayout* layout = nullptr;
  const std::byte* blob = nullptr;
  QuantizedRows hq;          // kNvfp4: h quantised again by QuantizeRows
  const float* h = nullptr;  // others: (rows, width), row stride h_stride
  uint32_t h_stride = 0;
  uint32_t rows = 0;
  float* y = nullptr;  // (rows, hidden), row stride y_stride
  uint32_t y_stride = 0;
  uint32_t band_begin = 0;
  uint32_t band_end = 0;
  const std::byte* read_ahead = nullptr;  // as above
  XtRows ht{};                            // kXt reads this instead: h rotated and quantised
};

// Reference arithmetic: a blob of any format decoded to the kF32 layout of the same shape. NVFP4:
// w = e2m1 * e4m3 * multiplier in fp32, left to right; XT: a row of level * (row scale *
// multiplier), taken out of the rotated space by UnrotateXt(); the others as above. Padding rows
// are zero.
struct DecodeExpertArgs {
  const ExpertLayout* layout = nullptr;  // of `blob`
  const std::byte* blob = nullptr;
  std::byte* f32_blob = nullptr;  // ExpertLayout{kF32, same shape}.blob_bytes()
};

}  // namespace hearth
