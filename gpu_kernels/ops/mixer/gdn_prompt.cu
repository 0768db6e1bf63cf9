// The chunked form of gdn.h for prompts. Three launches after the pending rows: the matrices of all
// chunks at once, which need keys, queries and gates only; the walk over the chunks of a segment,
// where a block of threads owns 32 columns of one head's state; norm, gate and quantisation.
//
// With S the state before a chunk and rows i, j <= i of it (cpu_kernels/ops/gdn.h):
//   T = (I + A)^-1 diag(beta), P[i][j] = (q_i . k_j) exp(L[i][j])
//   D = T (V - diag(exp(G)) K S);  out = diag(exp(G)) Q S + P D
//   S = exp(G[last]) S + K^T diag(exp(L[last])) D
// fp32 multiply-adds; a column takes 3 * key_dim + 2 * 64 of them a row.
#include <cuda_pipeline.h>

#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"
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
constexpr uint32_t kScanThreads = 128;
constexpr uint32_t kScanColumns = 32;
constexpr uint32_t kStagedMatrixStride = kRows + 4;
constexpr uint32_t kNormWarps = 4;

// What a chunk of one value head leaves in the scratch: T, P, exp(G), exp(L[last]).
constexpr size_t kChunkFloats = 2 * kRows * kRows + 2 * kRows;

struct ChunkPlace {
  uint32_t first_row;  // of the pass
  uint32_t rows;       // 1 to kRows; 0: there is no such chunk
};

// Chunks are numbered through the segments of the pass.
__device__ inline ChunkPlace ChunkAt(const GpuPassTable& pass, uint32_t chunk) {
  const uint32_t segments = *pass.segment_count;
  for (uint32_t s = 0; s < segments; ++s) {
    const GpuSegment& segment = pass.segments[s];
    const uint32_t chunks = (segment.rows + kRows - 1) / kRows;
    if (chunk < chunks) {
      return {segment.row_begin + chunk * kRows, min(kRows, segment.rows - chunk * kRows)};
    }
    chunk -= chunks;
  }
  return {0, 0};
}

__device__ inline uint32_t FirstChunkOf(const GpuPassTable& pass, uint32_t segment) {
  uint32_t chunk = 0;
  for (uint32_t s = 0; s < segment; ++s) chunk += (pass.segments[s].rows + kRows - 1) / kRows;
  return chunk;
}

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

// What the second half of the matrices kernel keeps in shared memory, over the staged rows.
struct MatrixShared {
  float a[kRows * kMatrixStride];
  float x[kRows * kMatrixStride];
  float product[kTiles * kTile * (kTile + 1)];
  float beta[kRows];
  double total[kRows];  // G; a difference of two keeps its bits
};

__device__ inline void StoreChunkMatrices(const GpuGdnPromptArgs& args, const ChunkPlace& place,
                                          uint32_t head, const ProductTiles& tiles,
                                          MatrixShared* shared, float* to) {
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
      to[kRows * kRows + row * kRows + column] = query;
      shared->a[row * kMatrixStride + column] = column < row ? key : 0.0f;
    }
  }
  __syncthreads();
  InvertUnitLower(shared->a, shared->x, shared->product);
  for (uint32_t at = threadIdx.x; at < kRows * kRows; at += kMatrixThreads) {
    const uint32_t row = at / kRows;
    const uint32_t column = at % kRows;
    to[at] = column <= row
                 ? __fmul_rn(shared->x[row * kMatrixStride + column], shared->beta[column])
                 : 0.0f;
  }
  if (threadIdx.x < kRows) {
    const double total = shared->total[threadIdx.x];
    to[2 * kRows * kRows + threadIdx.x] = ExpOf(static_cast<float>(total));
    to[2 * kRows * kRows + kRows + threadIdx.x] =
        ExpOf(static_cast<float>(shared->total[kRows - 1] - total));
  }
  __syncthreads();
}

// Block (key head, chunk): the matrices of the value heads that share the key head.
__global__ void __launch_bounds__(kMatrixThreads) GdnMatricesKernel(const GpuGdnPromptArgs args) {
  extern __shared__ float4 memory[];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const GpuGdnShape& shape = args.shape;
  const ChunkPlace place = ChunkAt(args.pass, blockIdx.y);
  if (place.rows == 0) return;
  const uint32_t channels = ChannelsOf(shape);
  const uint32_t stride = shape.key_dim + 4;
  auto* const q = reinterpret_cast<float*>(memory);
  float* const k = q + kRows * stride;
  const float* from = args.qkv + size_t{place.first_row} * channels + blockIdx.x * shape.key_dim;
  StageRowsAsync(q, stride, from, channels, place.rows, shape.key_dim);
  StageRowsAsync(k, stride, from + shape.key_heads * shape.key_dim, channels, place.rows,
                 shape.key_dim);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  const ProductTiles tiles = MultiplyKeys(k, q, stride, shape.key_dim);
  __syncthreads();
  const uint32_t group = shape.value_heads / shape.key_heads;
  for (uint32_t i = 0; i < group; ++i) {
    const uint32_t head = blockIdx.x * group + i;
    float* const to = args.scratch + (size_t{blockIdx.y} * shape.value_heads + head) * kChunkFloats;
    StoreChunkMatrices(args, place, head, tiles, reinterpret_cast<MatrixShared*>(memory), to);
  }
}

// Shared memory of the walk.
struct ScanShared {
  float* rows;    // (kRows, key_dim + 4): queries, then keys
  float* matrix;  // (kRows, kStagedMatrixStride): T, then P
  float* state;   // (key_dim, kScanColumns)
  float* r;       // (kRows, kScanColumns): V - exp(G) K S, then exp(L[last]) D
  float* d;       // (kRows, kScanColumns)
};

constexpr uint32_t ScanFloats(uint32_t key_dim) {
  return kRows * (key_dim + 4) + kRows * kStagedMatrixStride + key_dim * kScanColumns +
         2 * kRows * kScanColumns;
}

// Thread t: columns 4 (t % 8) ..., rows t / 8 + 16 m.
struct RowTile {
  float4 of[kTiles];
};

__device__ inline float4 Fma4(float a, float4 b, float4 acc) {
  return {__fmaf_rn(a, b.x, acc.x), __fmaf_rn(a, b.y, acc.y), __fmaf_rn(a, b.z, acc.z),
          __fmaf_rn(a, b.w, acc.w)};
}

// acc + a[rows][begin, end) * b[begin, end)[columns], of the tiles from `first_tile` on.
template <uint32_t kFirstTile>
__device__ inline void MultiplyAdd(const float* a, uint32_t a_stride, const float* b,
                                   uint32_t begin, uint32_t end, RowTile* acc) {
  const uint32_t column = threadIdx.x % 8 * 4;
  const uint32_t row = threadIdx.x / 8;
#pragma unroll 4
  for (uint32_t k = begin; k < end; k += 4) {
    float4 from_b[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) from_b[i] = LoadVector(b + (k + i) * kScanColumns + column, 0);
#pragma unroll
    for (uint32_t m = kFirstTile; m < kTiles; ++m) {
      const float4 from_a = LoadVector(a + (row + m * kTile) * a_stride + k, 0);
      acc->of[m] = Fma4(from_a.x, from_b[0], acc->of[m]);
      acc->of[m] = Fma4(from_a.y, from_b[1], acc->of[m]);
      acc->of[m] = Fma4(from_a.z, from_b[2], acc->of[m]);
      acc->of[m] = Fma4(from_a.w, from_b[3], acc->of[m]);
    }
  }
}

// acc + a * b for a lower triangular a.
__device__ inline void MultiplyLower(const float* a, const float* b, RowTile* acc) {
  MultiplyAdd<0>(a, kStagedMatrixStride, b, 0, kTile, acc);
  MultiplyAdd<1>(a, kStagedMatrixStride, b, kTile, 2 * kTile, acc);
  MultiplyAdd<2>(a, kStagedMatrixStride, b, 2 * kTile, 3 * kTile, acc);
  MultiplyAdd<3>(a, kStagedMatrixStride, b, 3 * kTile, 4 * kTile, acc);
}

// S = decay * S + K^T r: thread t owns rows (t / 8) * kKeyRows ... of S.
template <uint32_t kKeyRows>
__device__ inline void UpdateState(const ScanShared& shared, float decay) {
  constexpr uint32_t kStride = kKeyRows * 16 + 4;
  const uint32_t column = threadIdx.x % 8 * 4;
  const uint32_t first = threadIdx.x / 8 * kKeyRows;
  float4 acc[kKeyRows];
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    acc[i] = MapVector(LoadVector(shared.state + (first + i) * kScanColumns + column, 0),
                       [decay](float v) { return __fmul_rn(v, decay); });
  }
#pragma unroll 4
  for (uint32_t t = 0; t < kRows; ++t) {
    const float4 r = LoadVector(shared.r + t * kScanColumns + column, 0);
    float key[kKeyRows];
#pragma unroll
    for (uint32_t i = 0; i < kKeyRows; ++i) key[i] = shared.rows[t * kStride + first + i];
#pragma unroll
    for (uint32_t i = 0; i < kKeyRows; ++i) acc[i] = Fma4(key[i], r, acc[i]);
  }
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    StoreVector(shared.state + (first + i) * kScanColumns + column, 0, acc[i]);
  }
}

struct ScanPlace {  // of one chunk
  const float* q;
  const float* k;
  const float* v;     // of the block's columns
  float* out;         // likewise
  const float* from;  // the chunk's matrices
  uint32_t rows;
};

template <uint32_t kKeyRows>
__device__ inline void RunChunk(const ScanPlace& place, uint32_t channels, uint32_t out_stride,
                                const ScanShared& shared) {
  constexpr uint32_t kKeyDim = kKeyRows * 16;
  constexpr uint32_t kStride = kKeyDim + 4;
  const uint32_t column = threadIdx.x % 8 * 4;
  const uint32_t row = threadIdx.x / 8;
  const float* to_row = place.from + 2 * kRows * kRows;
  StageRowsAsync(shared.rows, kStride, place.q, channels, place.rows, kKeyDim);
  StageRowsAsync(shared.matrix, kStagedMatrixStride, place.from, kRows, kRows, kRows);
  __pipeline_commit();
  float4 v[kTiles];
  float decay[kTiles];
#pragma unroll
  for (uint32_t m = 0; m < kTiles; ++m) {
    const uint32_t t = row + m * kTile;
    v[m] = t < place.rows ? LoadVector(place.v + size_t{t} * channels + column, 0)
                          : float4{0, 0, 0, 0};
    decay[m] = to_row[t];
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  RowTile out = {};
  MultiplyAdd<0>(shared.rows, kStride, shared.state, 0, kKeyDim, &out);
  __syncthreads();
  StageRowsAsync(shared.rows, kStride, place.k, channels, place.rows, kKeyDim);
  __pipeline_commit();
#pragma unroll
  for (uint32_t m = 0; m < kTiles; ++m) {
    const float factor = decay[m];
    out.of[m] = MapVector(out.of[m], [factor](float x) { return __fmul_rn(x, factor); });
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  RowTile read = {};
  MultiplyAdd<0>(shared.rows, kStride, shared.state, 0, kKeyDim, &read);
#pragma unroll
  for (uint32_t m = 0; m < kTiles; ++m) {
    const float4 r = Fma4(-decay[m], read.of[m], v[m]);
    StoreVector(shared.r + (row + m * kTile) * kScanColumns + column, 0, r);
  }
  __syncthreads();
  RowTile d = {};
  MultiplyLower(shared.matrix, shared.r, &d);
  __syncthreads();
  StageRowsAsync(shared.matrix, kStagedMatrixStride, place.from + kRows * kRows, kRows, kRows,
                 kRows);
  __pipeline_commit();
#pragma unroll
  for (uint32_t m = 0; m < kTiles; ++m) {
    const uint32_t t = row + m * kTile;
    const float after = to_row[kRows + t];
    StoreVector(shared.d + t * kScanColumns + column, 0, d.of[m]);
    StoreVector(shared.r + t * kScanColumns + column, 0,
                MapVector(d.of[m], [after](float x) { return __fmul_rn(x, after); }));
  }
  __syncthreads();
  UpdateState<kKeyRows>(shared, to_row[kRows - 1]);
  __pipeline_wait_prior(0);
  __syncthreads();
  MultiplyLower(shared.matrix, shared.d, &out);
#pragma unroll
  for (uint32_t m = 0; m < kTiles; ++m) {
    const uint32_t t = row + m * kTile;
    if (t < place.rows) StoreVector(place.out + size_t{t} * out_stride + column, 0, out.of[m]);
  }
  __syncthreads();
}

// The block's columns of the state, from global to shared memory or back.
template <bool kLoad>
__device__ inline void MoveState(float* global, uint32_t value_dim, float* shared,
                                 uint32_t key_dim) {
  for (uint32_t i = threadIdx.x; i < key_dim * kScanColumns / 4; i += kScanThreads) {
    const uint32_t row = i / (kScanColumns / 4);
    float* const at = global + size_t{row} * value_dim + i % (kScanColumns / 4) * 4;
    if (kLoad) {
      StoreVector(shared, i, LoadVector(at, 0));
    } else {
      StoreVector(at, 0, LoadVector(shared, i));
    }
  }
}

// Block (32 columns of a head, segment).
template <uint32_t kKeyRows>
__global__ void __launch_bounds__(kScanThreads) GdnScanKernel(const GpuGdnPromptArgs args) {
  extern __shared__ float4 memory[];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  if (blockIdx.y >= *args.pass.segment_count) return;
  const GpuGdnShape& shape = args.shape;
  const GpuSegment& segment = args.pass.segments[blockIdx.y];
  constexpr uint32_t kKeyDim = kKeyRows * 16;
  const uint32_t slices = shape.value_dim / kScanColumns;
  const uint32_t head = blockIdx.x / slices;
  const uint32_t first_column = blockIdx.x % slices * kScanColumns;
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  const uint32_t channels = ChannelsOf(shape);
  const uint32_t mixed_dim = MixedDimOf(shape);
  ScanShared shared;
  shared.rows = reinterpret_cast<float*>(memory);
  shared.matrix = shared.rows + kRows * (kKeyDim + 4);
  shared.state = shared.matrix + kRows * kStagedMatrixStride;
  shared.r = shared.state + kKeyDim * kScanColumns;
  shared.d = shared.r + kRows * kScanColumns;

  float* const state = segment.layers[args.layer].delta_state +
                       size_t{head} * kKeyDim * shape.value_dim + first_column;
  MoveState<true>(state, shape.value_dim, shared.state, kKeyDim);
  const uint32_t first_chunk = FirstChunkOf(args.pass, blockIdx.y);
  for (uint32_t begin = 0; begin < segment.rows; begin += kRows) {
    const size_t row = segment.row_begin + begin;
    const float* const qkv = args.qkv + row * channels;
    const size_t chunk = first_chunk + begin / kRows;
    const ScanPlace place = {
        .q = qkv + key_head * kKeyDim,
        .k = qkv + (shape.key_heads + key_head) * kKeyDim,
        .v = qkv + 2 * shape.key_heads * kKeyDim + head * shape.value_dim + first_column,
        .out = args.output.mixed + row * mixed_dim + head * shape.value_dim + first_column,
        .from = args.scratch + (chunk * shape.value_heads + head) * kChunkFloats,
        .rows = min(kRows, segment.rows - begin)};
    RunChunk<kKeyRows>(place, channels, mixed_dim, shared);
  }
  MoveState<false>(state, shape.value_dim, shared.state, kKeyDim);
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

// Lets the kernel have `bytes` of shared memory, and launches it.
absl::Status LaunchWithShared(void (*kernel)(GpuGdnPromptArgs), dim3 grid, uint32_t threads,
                              uint32_t bytes, const GpuGdnPromptArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(bytes)),
                 "shared memory of the chunked delta rule"));
  return LaunchOverlapping("launch of the chunked delta rule", kernel,
                           {.blocks = grid, .threads = threads, .shared_bytes = bytes}, stream,
                           args);
}

absl::Status LaunchScan(const GpuGdnPromptArgs& args, uint32_t segments, CudaStreamView stream) {
  const GpuGdnShape& shape = args.shape;
  const dim3 grid(shape.value_heads * (shape.value_dim / kScanColumns), segments);
  const uint32_t bytes = ScanFloats(shape.key_dim) * sizeof(float);
  switch (shape.key_dim) {
    case 32:
      return LaunchWithShared(GdnScanKernel<2>, grid, kScanThreads, bytes, args, stream);
    case 64:
      return LaunchWithShared(GdnScanKernel<4>, grid, kScanThreads, bytes, args, stream);
    default:
      return LaunchWithShared(GdnScanKernel<8>, grid, kScanThreads, bytes, args, stream);
  }
}

}  // namespace

absl::Status LaunchGdnPrompt(const GpuGdnPromptArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnPrompt(args));
  static_assert(kChunkFloats == GdnPromptScratchFloats(0, 1, 1));
  const GpuGdnShape& shape = args.shape;
  const uint32_t segments = std::min(args.pass.rows, kPassSegmentsMax);
  HEARTH_RETURN_IF_ERROR(LaunchGdnPending(args.pass, shape, args.layer, stream));
  const uint32_t matrix_bytes =
      std::max<uint32_t>(2 * kRows * (shape.key_dim + 4) * sizeof(float), sizeof(MatrixShared));
  const dim3 chunks(shape.key_heads, args.pass.rows / kRows + segments);
  HEARTH_RETURN_IF_ERROR(
      LaunchWithShared(GdnMatricesKernel, chunks, kMatrixThreads, matrix_bytes, args, stream));
  HEARTH_RETURN_IF_ERROR(LaunchScan(args, segments, stream));
  const dim3 heads((shape.value_heads + kNormWarps - 1) / kNormWarps, args.pass.rows);
  return LaunchOverlapping("launch of the gated norm", GatedNormKernel,
                           {.blocks = heads, .threads = kNormWarps * kWarpLanes}, stream,
                           args.output, shape.value_heads, shape.value_dim);
}

}  // namespace hearth
