// Dense matrix times many activation rows (prompts) on the tensor cores of a GPU.
//   Q8 x quantised rows: int8 products, one fp32 fma for each block of 32 in order: the bits of
//     cpu_kernels' MatmulQ8, for any number of rows. With room for it, many rows on a card that has
//     warpgroups: gemm_half.h, whose bits of a row do not depend on other rows either.
//   BF16 or F32 x fp32 rows: each fp32 value as the sum of two bf16 values, bf16 products, fp32
//     sums: about 1e-6 of the norm; matrices of a few rows in plain fp32. Deterministic, and a
//     row's bits do not depend on other rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"

namespace hearth {

inline constexpr uint32_t kGemmRowsMax = 1u << 15;

// Device memory for rows of x in fp16: 1024-byte aligned, free while the product runs. May be none.
struct GemmRoom {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};
// What products of `rows` rows by `cols` columns may make use of.
uint64_t GemmRoomBytes(uint32_t rows, uint32_t cols);

// Rows from which Q8 products with room for them are of fp16, where the card can.
inline constexpr uint32_t kHalfGemmRowsMin = 256;

// The same contract as LaunchDenseMatmul for 1 to kGemmRowsMax rows: several matrices over the same
// x go into one launch for each of the two kinds. q is read in whole 16-byte pieces, scale in
// words. From about 32 rows on it is the faster one. Enqueues and returns; InvalidArgument names
// what does not fit.
absl::Status LaunchDenseGemm(const DenseMatmulArgs& args, const GemmRoom& room,
                             CudaStreamView stream);

}  // namespace hearth
