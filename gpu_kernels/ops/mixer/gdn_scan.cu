// The walk over the chunks of a segment (gdn_prompt.cu): a block of threads owns 32 columns of one
// head's state, which stays in the sums of its tensor cores' products. Every factor is the sum of
// two bf16 terms, 16 bits of mantissa; the product of both low terms is left out; sums are fp32.
//
// Four warps: each has 16 rows of a chunk, and a quarter of the state's rows. Shared memory is
// dealt out so that it suffices on every card: queries make room for T and P, and the blocks of
// what is between the products change places (Blocks).
#include <algorithm>

#include "gpu_kernels/common/async_copy.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/gdn_chunk.cuh"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * 32;
constexpr uint32_t kColumns = 32;
constexpr uint32_t kTiles = kColumns / 8;
constexpr uint32_t kColumnRowBytes = kColumns * 2;
constexpr uint32_t kRowsTermBytes = kChunkRows * kColumnRowBytes;  // of a row's columns
constexpr uint32_t kBlockBytes = 2 * kRowsTermBytes;
static_assert(kWarps * 16 == kChunkRows);

// Blocks of kBlockBytes. V - exp(G) K S goes into `differences`, D into `outputs`, and D with its
// decay takes the place of the state's high terms. The state's next high terms take that of
// `differences`.
struct Blocks {
  std::byte* state_high;
  std::byte* state_low;
  std::byte* differences;
  std::byte* outputs;
};

template <uint32_t kKeyDim>
struct Shared {
  static constexpr uint32_t kKeysBytes = kChunkKeysBytes<kKeyDim>;
  std::byte keys[kKeysBytes];
  std::byte others[kKeysBytes > 2 * kMatrixBytes ? kKeysBytes : 2 * kMatrixBytes];
  std::byte blocks[4][kBlockBytes];
  float gates[2][kChunkRows];  // exp(G), exp(L[last])
  SharedBarrier keys_there;
  SharedBarrier queries_there;
  SharedBarrier matrices_there;
};

// An operand of sixteen rows of an image from `row` on, columns [16 * k, ...).
template <uint32_t kRowBytes>
__device__ inline MmaA RowOperand(const std::byte* image, uint32_t row, uint32_t k) {
  const uint32_t lane = threadIdx.x % 32;
  const MmaB four =
      LoadMatrices4(image + PieceOffset<kRowBytes>(row + lane % 16, k * 2 + lane / 16));
  return {{four.x[0], four.x[1], four.x[2], four.x[3]}};
}

// The same of the transposed image: its columns [column, column + 16) are the operand's rows.
template <uint32_t kRowBytes>
__device__ inline MmaA ColumnOperand(const std::byte* image, uint32_t column, uint32_t k) {
  const uint32_t lane = threadIdx.x % 32;
  const MmaB four = LoadTransposed4(
      image + PieceOffset<kRowBytes>(k * 16 + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
  return {{four.x[0], four.x[1], four.x[2], four.x[3]}};
}

// Rows [16 * k, ...) of an image of kColumns, two tiles of eight columns from 2 * pair on.
__device__ inline MmaB TileOperand(const std::byte* image, uint32_t k, uint32_t pair) {
  const uint32_t lane = threadIdx.x % 32;
  return LoadTransposed4(image +
                         PieceOffset<kColumnRowBytes>(k * 16 + lane % 16, pair * 2 + lane / 16));
}

struct TileSums {
  MmaSum of[kTiles];
};

// What sixteen of the common dimension take: both terms of a warp's rows and of all columns.
struct Operands {
  MmaA a[2];  // high, low
  MmaB b[2][kTiles / 2];
};

__device__ inline Operands WithTiles(const MmaA& high, const MmaA& low, const std::byte* b_high,
                                     const std::byte* b_low, uint32_t k) {
  Operands o;
  o.a[0] = high;
  o.a[1] = low;
#pragma unroll
  for (uint32_t pair = 0; pair < kTiles / 2; ++pair) {
    o.b[0][pair] = TileOperand(b_high, k, pair);
    o.b[1][pair] = TileOperand(b_low, k, pair);
  }
  return o;
}

// sums += a * b. The tiles take turns, so that none waits for its sum before.
__device__ inline void AddProducts(const Operands& o, TileSums* sums) {
  constexpr uint32_t kTerms[3][2] = {{1, 0}, {0, 1}, {0, 0}};  // of a and of b
#pragma unroll
  for (const auto& [of_a, of_b] : kTerms) {
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) {
      const MmaB& b = o.b[of_b][n / 2];
      Multiply(o.a[of_a], b.x[n % 2 * 2], b.x[n % 2 * 2 + 1], &sums->of[n]);
    }
  }
}

// sums += the products of the first `count` <= kCount operands; the next ones are loaded ahead.
template <uint32_t kCount, class Load>
__device__ inline void AddAll(uint32_t count, Load load, TileSums* sums) {
  Operands next = load(0);
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k) {
    if (k >= count) break;
    const Operands now = next;
    if (k + 1 < count) next = load(k + 1);
    AddProducts(now, sums);
  }
}

// The warp's sixteen rows of `image`, keys or queries, times the state.
template <uint32_t kKeyDim>
__device__ inline TileSums TimesState(const std::byte* image, const Blocks& blocks) {
  constexpr uint32_t kRowBytes = kKeyDim * 2;
  const uint32_t row = threadIdx.x / 32 * 16;
  TileSums sums;
  AddAll<kKeyDim / 16>(
      kKeyDim / 16,
      [&](uint32_t k) {
        return WithTiles(RowOperand<kRowBytes>(image, row, k),
                         RowOperand<kRowBytes>(image + kChunkRows * kRowBytes, row, k),
                         blocks.state_high, blocks.state_low, k);
      },
      &sums);
  return sums;
}

// sums += the warp's rows of a lower triangular matrix times a block.
__device__ inline void AddTimesBlock(const std::byte* matrix, const std::byte* block,
                                     TileSums* sums) {
  const uint32_t warp = threadIdx.x / 32;
  AddAll<kWarps>(
      warp + 1,
      [&](uint32_t k) {
        return WithTiles(RowOperand<kMatrixRowBytes>(matrix, warp * 16, k),
                         RowOperand<kMatrixRowBytes>(matrix + kMatrixTermBytes, warp * 16, k),
                         block, block + kRowsTermBytes, k);
      },
      sums);
}

// Two neighbours of a row of kColumns, tile `tile`, into two images.
__device__ inline void StorePair(std::byte* high, std::byte* low, uint32_t row, uint32_t tile,
                                 float first, float second) {
  const uint32_t at = PieceOffset<kColumnRowBytes>(row, tile) + threadIdx.x % 4 * sizeof(uint32_t);
  const PairTerms terms = SplitPair(first, second);
  *reinterpret_cast<uint32_t*>(high + at) = terms.high;
  *reinterpret_cast<uint32_t*>(low + at) = terms.low;
}

// The warp's share of the state: tiles of sixteen rows.
template <uint32_t kKeyDim>
struct State {
  static constexpr uint32_t kRowTiles = kKeyDim < 64 ? 1 : kKeyDim / 64;
  TileSums of[kRowTiles];

  __device__ static uint32_t FirstRow() { return threadIdx.x / 32 * kRowTiles * 16; }
  __device__ static bool Owns() { return FirstRow() < kKeyDim; }

  // visit(row, tile, pair of neighbours) of what this lane has.
  template <class Visit>
  __device__ void ForEach(Visit visit) {
    if (!Owns()) return;
    const uint32_t row = FirstRow() + threadIdx.x % 32 / 4;
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n) {
        visit(row + m * 16, n, of[m].of[n].x);
        visit(row + m * 16 + 8, n, of[m].of[n].x + 2);
      }
    }
  }

  __device__ void StoreTerms(std::byte* high, std::byte* low) {
    ForEach([&](uint32_t row, uint32_t tile, const float* pair) {
      StorePair(high, low, row, tile, pair[0], pair[1]);
    });
  }

  // S = decay * S + K^T D, D with its decay.
  __device__ void Update(float decay, const std::byte* keys, const std::byte* block) {
    if (!Owns()) return;
    constexpr uint32_t kRowBytes = kKeyDim * 2;
#pragma unroll
    for (uint32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (MmaSum& sum : of[m].of) {
#pragma unroll
        for (float& x : sum.x) x = __fmul_rn(x, decay);
      }
      const uint32_t row = FirstRow() + m * 16;
      AddAll<kChunkRows / 16>(
          kChunkRows / 16,
          [&](uint32_t k) {
            return WithTiles(ColumnOperand<kRowBytes>(keys, row, k),
                             ColumnOperand<kRowBytes>(keys + kChunkRows * kRowBytes, row, k), block,
                             block + kRowsTermBytes, k);
          },
          &of[m]);
    }
  }
};

// One chunk as the block of threads sees it.
struct ScanPlace {
  const float* v;  // of the block's columns
  float* out;      // likewise
  const std::byte* head;
  const std::byte* keys;  // keys, then queries
  uint32_t rows;
};

// What a lane has of the values: rows g and g + 8 of the warp's, columns 2c and 2c + 1 of each
// tile.
struct LaneValues {
  float2 of[2][kTiles];
};

__device__ inline LaneValues LoadValues(const ScanPlace& place, uint32_t channels) {
  LaneValues values;
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t t = threadIdx.x / 32 * 16 + half * 8 + lane / 4;
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) {
      values.of[half][n] = t < place.rows
                               ? *reinterpret_cast<const float2*>(place.v + size_t{t} * channels +
                                                                  n * 8 + lane % 4 * 2)
                               : float2{0, 0};
    }
  }
  return values;
}

template <uint32_t kKeyDim>
class Walk {
 public:
  __device__ Walk(const GdnChunkArgs& args, uint32_t head, uint32_t first_column,
                  Shared<kKeyDim>* shared)
      : args_(args), shared_(*shared), head_(head), first_column_(first_column) {
    blocks_ = {shared->blocks[0], shared->blocks[1], shared->blocks[2], shared->blocks[3]};
  }

  __device__ void Run(const GpuSegment& segment, uint32_t first_chunk, float* global_state) {
    const uint32_t value_dim = args_.prompt.shape.value_dim;
    state_.ForEach([&](uint32_t row, uint32_t tile, float* pair) {
      const float2 two = *StateAt(global_state, value_dim, row, tile);
      pair[0] = two.x;
      pair[1] = two.y;
    });
    state_.StoreTerms(blocks_.state_high, blocks_.state_low);
    const uint32_t chunks = (segment.rows + kChunkRows - 1) / kChunkRows;
    Copy(PlaceOf(segment, first_chunk, 0), true);
    Copy(PlaceOf(segment, first_chunk, 0), false);
    __syncthreads();
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      RunChunk(PlaceOf(segment, first_chunk, chunk),
               PlaceOf(segment, first_chunk, min(chunk + 1, chunks - 1)), chunk + 1 < chunks,
               chunk % 2);
    }
    state_.ForEach([&](uint32_t row, uint32_t tile, const float* pair) {
      *StateAt(global_state, value_dim, row, tile) = {pair[0], pair[1]};
    });
  }

 private:
  __device__ static float2* StateAt(float* state, uint32_t value_dim, uint32_t row, uint32_t tile) {
    return reinterpret_cast<float2*>(state + size_t{row} * value_dim + tile * 8 +
                                     threadIdx.x % 4 * 2);
  }

  __device__ ScanPlace PlaceOf(const GpuSegment& segment, uint32_t first_chunk,
                               uint32_t chunk) const {
    const GpuGdnShape& shape = args_.prompt.shape;
    const size_t row = segment.row_begin + chunk * kChunkRows;
    const uint32_t key_head = head_ / (shape.value_heads / shape.key_heads);
    const size_t at = first_chunk + chunk;
    return {.v = args_.prompt.qkv + row * ChannelsOf(shape) + 2 * shape.key_heads * kKeyDim +
                 head_ * shape.value_dim + first_column_,
            .out = args_.prompt.output.mixed + row * MixedDimOf(shape) + head_ * shape.value_dim +
                   first_column_,
            .head = HeadOfChunk(args_, at, head_),
            .keys = KeysOfChunk<kKeyDim>(args_, at, key_head),
            .rows = min(kChunkRows, segment.rows - chunk * kChunkRows)};
  }

  __device__ void Copy(const ScanPlace& place, bool keys) {
    if (threadIdx.x >= 32) return;
    const CopyRange ranges[1] = {
        {keys ? shared_.keys : shared_.others, place.keys + (keys ? 0 : kKeysBytes), kKeysBytes}};
    CopyAhead(ranges, keys ? &shared_.keys_there : &shared_.queries_there);
  }

  __device__ void RunChunk(const ScanPlace& place, const ScanPlace& after, bool more,
                           uint32_t parity) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t row = threadIdx.x / 32 * 16 + lane / 4;
    const LaneValues values = LoadValues(place, ChannelsOf(args_.prompt.shape));
    shared_.queries_there.Wait(parity);
    TileSums out = TimesState<kKeyDim>(shared_.others, blocks_);
    __syncthreads();  // queries are read
    if (threadIdx.x < 32) {
      const CopyRange ranges[2] = {{shared_.others, place.head, 2 * kMatrixBytes},
                                   {reinterpret_cast<std::byte*>(shared_.gates),
                                    place.head + 2 * kMatrixBytes, kChunkGateBytes}};
      CopyAhead(ranges, &shared_.matrices_there);
    }
    shared_.keys_there.Wait(parity);
    const TileSums read = TimesState<kKeyDim>(shared_.keys, blocks_);
    shared_.matrices_there.Wait(parity);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const float decay = shared_.gates[0][row + half * 8];
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n) {
        const float2 v = values.of[half][n];
        StorePair(blocks_.differences, blocks_.differences + kRowsTermBytes, row + half * 8, n,
                  __fmaf_rn(-decay, read.of[n].x[2 * half], v.x),
                  __fmaf_rn(-decay, read.of[n].x[2 * half + 1], v.y));
        out.of[n].x[2 * half] = __fmul_rn(out.of[n].x[2 * half], decay);
        out.of[n].x[2 * half + 1] = __fmul_rn(out.of[n].x[2 * half + 1], decay);
      }
    }
    __syncthreads();  // differences are there, the state's terms are read
    TileSums d;
    AddTimesBlock(shared_.others, blocks_.differences, &d);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const float decay = shared_.gates[1][row + half * 8];
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n) {
        const float first = d.of[n].x[2 * half];
        const float second = d.of[n].x[2 * half + 1];
        StorePair(blocks_.outputs, blocks_.outputs + kRowsTermBytes, row + half * 8, n, first,
                  second);
        StorePair(blocks_.state_high, blocks_.state_high + kRowsTermBytes, row + half * 8, n,
                  __fmul_rn(first, decay), __fmul_rn(second, decay));
      }
    }
    const float whole_decay = shared_.gates[0][kChunkRows - 1];
    __syncthreads();  // D is there in both forms
    AddTimesBlock(shared_.others + kMatrixBytes, blocks_.outputs, &out);
    StoreOut(place, out);
    __syncthreads();  // P and the gates are read
    if (more) Copy(after, false);
    state_.Update(whole_decay, shared_.keys, blocks_.state_high);
    state_.StoreTerms(blocks_.differences, blocks_.state_low);
    __syncthreads();  // keys are read, the state's terms are there
    if (more) Copy(after, true);
    std::byte* const free = blocks_.state_high;
    blocks_.state_high = blocks_.differences;
    blocks_.differences = free;
  }

  __device__ void StoreOut(const ScanPlace& place, const TileSums& out) const {
    const uint32_t stride = MixedDimOf(args_.prompt.shape);
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t t = threadIdx.x / 32 * 16 + half * 8 + lane / 4;
      if (t >= place.rows) continue;
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n) {
        *reinterpret_cast<float2*>(place.out + size_t{t} * stride + n * 8 + lane % 4 * 2) = {
            out.of[n].x[2 * half], out.of[n].x[2 * half + 1]};
      }
    }
  }

  static constexpr uint32_t kKeysBytes = Shared<kKeyDim>::kKeysBytes;
  const GdnChunkArgs& args_;
  Shared<kKeyDim>& shared_;
  const uint32_t head_;
  const uint32_t first_column_;
  Blocks blocks_;
  State<kKeyDim> state_;
};

// grid: (groups of kColumns columns of all heads, segments).
template <uint32_t kKeyDim>
__global__ void __launch_bounds__(kThreads, 2)
    GdnScanKernel(const __grid_constant__ GdnChunkArgs args) {
  extern __shared__ __align__(128) std::byte memory[];
  auto* const shared = reinterpret_cast<Shared<kKeyDim>*>(memory);
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const GpuGdnPromptArgs& prompt = args.prompt;
  if (blockIdx.y >= *prompt.pass.segment_count) return;
  if (threadIdx.x == 0) {
    shared->keys_there.Init(kCopyArrivals);
    shared->queries_there.Init(kCopyArrivals);
    shared->matrices_there.Init(kCopyArrivals);
    PublishBarriers();
  }
  __syncthreads();
  const GpuSegment& segment = prompt.pass.segments[blockIdx.y];
  const uint32_t groups = prompt.shape.value_dim / kColumns;
  const uint32_t head = blockIdx.x / groups;
  const uint32_t first_column = blockIdx.x % groups * kColumns;
  Walk<kKeyDim>(args, head, first_column, shared)
      .Run(segment, FirstChunkOf(prompt.pass, blockIdx.y),
           segment.layers[prompt.layer].delta_state +
               size_t{head} * kKeyDim * prompt.shape.value_dim + first_column);
}

template <uint32_t kKeyDim>
absl::Status Launch(const GdnChunkArgs& args, dim3 grid, CudaStreamView stream) {
  constexpr uint32_t kBytes = sizeof(Shared<kKeyDim>);
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(GdnScanKernel<kKeyDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kBytes)),
      "shared memory of the walk over chunks"));
  return LaunchOverlapping("launch of the walk over chunks", GdnScanKernel<kKeyDim>,
                           {.blocks = grid, .threads = kThreads, .shared_bytes = kBytes}, stream,
                           args);
}

}  // namespace

absl::Status LaunchGdnScan(const GdnChunkArgs& args, uint32_t segments, CudaStreamView stream) {
  const GpuGdnShape& shape = args.prompt.shape;
  const dim3 grid(shape.value_heads * (shape.value_dim / kColumns), segments);
  switch (shape.key_dim) {
    case 32:
      return Launch<32>(args, grid, stream);
    case 64:
      return Launch<64>(args, grid, stream);
    default:
      return Launch<128>(args, grid, stream);
  }
}

}  // namespace hearth
