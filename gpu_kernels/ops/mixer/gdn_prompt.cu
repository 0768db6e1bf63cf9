// The chunked form of gdn.h for prompts. Three launches after the pending rows: the matrices of all
// chunks at once, which need keys, queries and gates only; the walk over the chunks of a segment
// (gdn_scan.cu); norm, gate and quantisation.
//
// With S the state before a chunk and rows i, j <= i of it (cpu_kernels/ops/gdn.h):
//   T = (I + A)^-1 diag(beta), P[i][j] = (q_i . k_j) exp(L[i][j])
//   D = T (V - diag(exp(G)) K S);  out = diag(exp(G)) Q S + P D
//   S = exp(G[last]) S + K^T diag(exp(L[last])) D
#include <cuda_pipeline.h>

#include <algorithm>

#include "gpu_kernels/common/bf16_mma.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/gdn_chunk.cuh"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kRows = kGdnChunkRows;
constexpr uint32_t kTile = 16;  // rows of a block of the triangular inverse
constexpr uint32_t kTiles = kRows / kTile;
constexpr uint32_t kMatrixThreads = 256;
constexpr uint32_t kMatrixStride =
    kRows + 1;  // odd: columns and rows are both read without conflicts
constexpr uint32_t kNormWarps = 4;

// Rows [0, kRows) of `from` into shared memory, `count` floats each; rows from `rows` on are zeros.
__device__ inline void StageRowsAsync(float* to, uint32_t to_stride, const float* from,
                                      size_t from_stride, uint32_t rows, uint32_t count) {
  const uint32_t vectors = count / 4;
  for (uint32_t i = threadIdx.x; i < kRows * vectors; i += blockDim.x) {
    const uint32_t row = i / vectors;
    const uint32_t at = i % vectors * 4;
    float* const target = to + row * to_stride + at;
    if (row < rows) {
      __pipeline_memcpy_async(target, from + row * from_stride + at, 16);
    } else {
      StoreVector(target, 0, {0, 0, 0, 0});
    }
  }
}

__device__ inline float Dot4(float4 a, float4 b, float acc) {
  acc = __fmaf_rn(a.x, b.x, acc);
  acc = __fmaf_rn(a.y, b.y, acc);
  acc = __fmaf_rn(a.z, b.z, acc);
  return __fmaf_rn(a.w, b.w, acc);
}

// The products of keys and of queries with keys: thread (i, j) holds rows i + 16 m, columns j + 16
// n.
struct ProductTiles {
  float key[kTiles][kTiles];
  float query[kTiles][kTiles];
};

__device__ inline ProductTiles MultiplyKeys(const float* k, const float* q, uint32_t stride,
                                            uint32_t key_dim) {
  const uint32_t i = threadIdx.x / kTile;
  const uint32_t j = threadIdx.x % kTile;
  ProductTiles tiles = {};
  for (uint32_t at = 0; at < key_dim; at += 4) {
    float4 columns[kTiles];
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n)
      columns[n] = LoadVector(k + (j + n * kTile) * stride + at, 0);
#pragma unroll
    for (uint32_t m = 0; m < kTiles; ++m) {
      const float4 key = LoadVector(k + (i + m * kTile) * stride + at, 0);
      const float4 query = LoadVector(q + (i + m * kTile) * stride + at, 0);
#pragma unroll
      for (uint32_t n = 0; n <= m; ++n) {
        tiles.key[m][n] = Dot4(key, columns[n], tiles.key[m][n]);
        tiles.query[m][n] = Dot4(query, columns[n], tiles.query[m][n]);
      }
    }
  }
  return tiles;
}

// The unit lower triangular inverse of I + a, both in shared memory: the blocks on the diagonal by
// substitution, then X[i][j] = -X[i][i] * sum over j <= k < i of a[i][k] X[k][j], diagonal after
// diagonal. `product` holds a block for each of them.
__device__ inline void InvertUnitLower(const float* a, float* x, float* product) {
  const auto at = [](uint32_t row, uint32_t column) { return row * kMatrixStride + column; };
  if (threadIdx.x < kRows) {
    const uint32_t first = threadIdx.x / kTile * kTile;
    const uint32_t c = threadIdx.x % kTile;
    for (uint32_t r = 0; r < kTile; ++r) {
      float sum = r == c ? 1.0f : 0.0f;
      for (uint32_t m = c; m < r; ++m) {
        sum = __fmaf_rn(-a[at(first + r, first + m)], x[at(first + m, first + c)], sum);
      }
      x[at(first + r, first + c)] = r < c ? 0.0f : sum;
    }
  }
  const uint32_t r = threadIdx.x / kTile;
  const uint32_t c = threadIdx.x % kTile;
  for (uint32_t distance = 1; distance < kTiles; ++distance) {
    __syncthreads();
    for (uint32_t j = 0; j + distance < kTiles; ++j) {
      const uint32_t row = (j + distance) * kTile + r;
      float sum = 0;
      for (uint32_t k = j * kTile; k < (j + distance) * kTile; ++k) {
        sum = __fmaf_rn(a[at(row, k)], x[at(k, j * kTile + c)], sum);
      }
      product[(j * kTile + r) * (kTile + 1) + c] = sum;
    }
    __syncthreads();
    for (uint32_t j = 0; j + distance < kTiles; ++j) {
      const uint32_t first = (j + distance) * kTile;
      float sum = 0;
      for (uint32_t k = 0; k < kTile; ++k) {
        sum = __fmaf_rn(-x[at(first + r, first + k)], product[(j * kTile + k) * (kTile + 1) + c],
                        sum);
      }
      x[at(first + r, j * kTile + c)] = sum;
    }
  }
  __syncthreads();
}

// Eight neighbours of a row as a piece of both of an image's terms.
__device__ inline void StorePiece(std::byte* high, std::byte* low, const float (&x)[8]) {
  uint32_t terms[2][4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const PairTerms pair = SplitPair(x[2 * i], x[2 * i + 1]);
    terms[0][i] = pair.high;
    terms[1][i] = pair.low;
  }
  *reinterpret_cast<uint4*>(high) = {terms[0][0], terms[0][1], terms[0][2], terms[0][3]};
  *reinterpret_cast<uint4*>(low) = {terms[1][0], terms[1][1], terms[1][2], terms[1][3]};
}

// The image of (kRows, kKeyDim) values in shared memory.
template <uint32_t kKeyDim>
__device__ inline void StoreKeys(const float* from, uint32_t stride, std::byte* to) {
  constexpr uint32_t kPieces = kKeyDim / 8;
  for (uint32_t i = threadIdx.x; i < kRows * kPieces; i += kMatrixThreads) {
    const uint32_t row = i / kPieces;
    const float4 first = LoadVector(from + row * stride + i % kPieces * 8, 0);
    const float4 second = LoadVector(from + row * stride + i % kPieces * 8, 1);
    std::byte* const at = to + PieceOffset<kKeyDim * 2>(row, i % kPieces);
    StorePiece(at, at + kRows * kKeyDim * 2,
               {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w});
  }
}

// What the second half of the matrices kernel keeps in shared memory, over the staged rows.
struct MatrixShared {
  float a[kRows * kMatrixStride];
  float x[kRows * kMatrixStride];
  float p[kRows * kMatrixStride];
  float product[kTiles * kTile * (kTile + 1)];
  float beta[kRows];
  double total[kRows];  // G; a difference of two keeps its bits
};

__device__ inline void StoreChunkMatrices(const GpuGdnPromptArgs& args, const ChunkPlace& place,
                                          uint32_t head, const ProductTiles& tiles,
                                          MatrixShared* shared, std::byte* to) {
  const size_t first_gate = size_t{place.first_row} * args.shape.value_heads + head;
  if (threadIdx.x < kRows) {
    const bool there = threadIdx.x < place.rows;
    const size_t at = first_gate + size_t{threadIdx.x} * args.shape.value_heads;
    shared->beta[threadIdx.x] = there ? args.beta[at] : 0.0f;
    shared->a[threadIdx.x] = there ? args.log_decay[at] : 0.0f;
  }
  __syncthreads();
  if (threadIdx.x < kWarpLanes) {  // an inclusive sum over the rows, two a lane
    const double first = double{shared->a[2 * threadIdx.x]};
    const double second = double{shared->a[2 * threadIdx.x + 1]};
    double sum = first + second;
    for (uint32_t offset = 1; offset < kWarpLanes; offset *= 2) {
      const double below = __shfl_up_sync(kAllWarpLanes, sum, offset);
      if (threadIdx.x >= offset) sum += below;
    }
    shared->total[2 * threadIdx.x] = sum - second;
    shared->total[2 * threadIdx.x + 1] = sum;
  }
  __syncthreads();
  const uint32_t i = threadIdx.x / kTile;
  const uint32_t j = threadIdx.x % kTile;
#pragma unroll
  for (uint32_t m = 0; m < kTiles; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) {
      const uint32_t row = i + m * kTile;
      const uint32_t column = j + n * kTile;
      float query = 0;
      float key = 0;
      if (n <= m && column <= row) {
        const float decay = ExpOf(static_cast<float>(shared->total[row] - shared->total[column]));
        query = __fmul_rn(tiles.query[m][n], decay);
        key = __fmul_rn(shared->beta[row], __fmul_rn(tiles.key[m][n], decay));
      }
      shared->p[row * kMatrixStride + column] = query;
      shared->a[row * kMatrixStride + column] = column < row ? key : 0.0f;
    }
  }
  __syncthreads();
  InvertUnitLower(shared->a, shared->x, shared->product);
  constexpr uint32_t kPieces = kRows / 8;
  for (uint32_t at = threadIdx.x; at < 2 * kRows * kPieces; at += kMatrixThreads) {
    const bool is_p = at >= kRows * kPieces;
    const uint32_t row = at / kPieces % kRows;
    const uint32_t first = at % kPieces * 8;
    const float* const from = (is_p ? shared->p : shared->x) + row * kMatrixStride + first;
    float values[8];
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const float scaled = is_p ? from[i] : __fmul_rn(from[i], shared->beta[first + i]);
      values[i] = first + i <= row ? scaled : 0.0f;
    }
    std::byte* const piece =
        to + (is_p ? kMatrixBytes : 0) + PieceOffset<kMatrixRowBytes>(row, first / 8);
    StorePiece(piece, piece + kMatrixTermBytes, values);
  }
  if (threadIdx.x < kRows) {
    auto* const gates = reinterpret_cast<float*>(to + 2 * kMatrixBytes);
    const double total = shared->total[threadIdx.x];
    gates[threadIdx.x] = ExpOf(static_cast<float>(total));
    gates[kRows + threadIdx.x] = ExpOf(static_cast<float>(shared->total[kRows - 1] - total));
  }
  __syncthreads();
}

// Block (key head, chunk): the matrices of the value heads that share the key head.
template <uint32_t kKeyDim>
__global__ void __launch_bounds__(kMatrixThreads)
    GdnMatricesKernel(const __grid_constant__ GdnChunkArgs chunk_args) {
  extern __shared__ float4 memory[];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const GpuGdnPromptArgs& args = chunk_args.prompt;
  const GpuGdnShape& shape = args.shape;
  const ChunkPlace place = ChunkAt(args.pass, blockIdx.y);
  if (place.rows == 0) return;
  const uint32_t channels = ChannelsOf(shape);
  constexpr uint32_t stride = kKeyDim + 4;
  auto* const q = reinterpret_cast<float*>(memory);
  float* const k = q + kRows * stride;
  const float* from = args.qkv + size_t{place.first_row} * channels + blockIdx.x * shape.key_dim;
  StageRowsAsync(q, stride, from, channels, place.rows, shape.key_dim);
  StageRowsAsync(k, stride, from + shape.key_heads * shape.key_dim, channels, place.rows,
                 shape.key_dim);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  const ProductTiles tiles = MultiplyKeys(k, q, stride, kKeyDim);
  std::byte* const keys = KeysOfChunk<kKeyDim>(chunk_args, blockIdx.y, blockIdx.x);
  StoreKeys<kKeyDim>(k, stride, keys);
  StoreKeys<kKeyDim>(q, stride, keys + kChunkKeysBytes<kKeyDim>);
  __syncthreads();
  const uint32_t group = shape.value_heads / shape.key_heads;
  for (uint32_t i = 0; i < group; ++i) {
    const uint32_t head = blockIdx.x * group + i;
    std::byte* const to = HeadOfChunk(chunk_args, blockIdx.y, head);
    StoreChunkMatrices(args, place, head, tiles, reinterpret_cast<MatrixShared*>(memory), to);
  }
}

// A warp for each head of a row, in place.
__global__ void __launch_bounds__(kNormWarps* kWarpLanes)
    GatedNormKernel(GpuGatedNormArgs args, uint32_t heads, uint32_t dim) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t head = blockIdx.x * kNormWarps + threadIdx.x / kWarpLanes;
  if (head >= heads) return;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const size_t first = (size_t{blockIdx.y} * heads + head) * dim;
  float o[4];
  float sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (i * kWarpLanes >= dim) break;
    o[i] = args.mixed[first + i * kWarpLanes + lane];
    sum = __fmaf_rn(o[i], o[i], sum);
  }
  const float factor = NormFactor(WarpSum(sum), dim, args.epsilon);
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (i * kWarpLanes >= dim) break;
    const size_t at = first + i * kWarpLanes + lane;
    const float z = args.z[at];
    const float gate = args.gate == OutputGate::kSilu ? SiluOf(z) : SigmoidOf(z);
    const float y =
        __fmul_rn(__fmul_rn(__fmul_rn(o[i], factor), args.norm[i * kWarpLanes + lane]), gate);
    args.mixed[at] = y;
    if (args.mixed_quantized.q != nullptr) StoreQuantizedLane(args.mixed_quantized, at, y);
  }
}

template <uint32_t kKeyDim>
absl::Status LaunchMatrices(const GdnChunkArgs& args, uint32_t chunks, CudaStreamView stream) {
  constexpr uint32_t kBytes =
      std::max<uint32_t>(2 * kRows * (kKeyDim + 4) * sizeof(float), sizeof(MatrixShared));
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(GdnMatricesKernel<kKeyDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kBytes)),
      "shared memory of the chunks' matrices"));
  return LaunchOverlapping("launch of the chunks' matrices", GdnMatricesKernel<kKeyDim>,
                           {.blocks = dim3(args.prompt.shape.key_heads, chunks),
                            .threads = kMatrixThreads,
                            .shared_bytes = kBytes},
                           stream, args);
}

}  // namespace

absl::Status LaunchGdnPrompt(const GpuGdnPromptArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnPrompt(args));
  const GpuGdnShape& shape = args.shape;
  const uint32_t segments = std::min(args.pass.rows, kPassSegmentsMax);
  HEARTH_RETURN_IF_ERROR(LaunchGdnPending(args.pass, shape, args.layer, stream));
  const uint32_t chunks = args.pass.rows / kRows + segments;
  const size_t chunk_bytes = GdnPromptScratchFloats(0, 1, shape) * sizeof(float);
  const GdnChunkArgs chunk_args = {.prompt = args,
                                   .chunks = reinterpret_cast<std::byte*>(args.scratch),
                                   .stride_bytes = static_cast<uint32_t>(chunk_bytes)};
  switch (shape.key_dim) {
    case 32:
      HEARTH_RETURN_IF_ERROR(LaunchMatrices<32>(chunk_args, chunks, stream));
      break;
    case 64:
      HEARTH_RETURN_IF_ERROR(LaunchMatrices<64>(chunk_args, chunks, stream));
      break;
    default:
      HEARTH_RETURN_IF_ERROR(LaunchMatrices<128>(chunk_args, chunks, stream));
  }
  static_assert(kChunkHeadBytes + 2 * kChunkKeysBytes<128> ==
                GdnPromptScratchFloats(0, 1, {1, 1, 128, 128, 1}) * sizeof(float));
  HEARTH_RETURN_IF_ERROR(LaunchGdnScan(chunk_args, segments, stream));
  const dim3 grid((shape.value_heads + kNormWarps - 1) / kNormWarps, args.pass.rows);
  return LaunchOverlapping("launch of the gated norm", GatedNormKernel,
                           {.blocks = grid, .threads = kNormWarps * kWarpLanes}, stream,
                           args.output, shape.value_heads, shape.value_dim);
}

}  // namespace hearth
