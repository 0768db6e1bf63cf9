// The kernels of ngram.h.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/ngram.h"
#include "gpu_kernels/ops/mixer/pass_rows.cuh"
#include "gpu_kernels/ops/mixer/ring_store.cuh"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kConvThreads = 128;

__device__ inline double AddProducts(float4 a, float4 b, double acc) {
  acc += double{a.x} * double{b.x};
  acc += double{a.y} * double{b.y};
  acc += double{a.z} * double{b.z};
  return acc + double{a.w} * double{b.w};
}

// sigmoid of the signed square root of a.
__device__ inline float StreamGate(float a) {
  const float root = __fsqrt_rn(fmaxf(fabsf(a), 1e-6f));
  return SigmoidOf(a > 0 ? root : (a < 0 ? -root : 0.0f));
}

// Block (s, row): G and X of one stream of one row, kVectors vectors a thread.
template <uint32_t kVectors>
__global__ void __launch_bounds__(kVectors == 1 ? 1024 : 512)
    NgramGateKernel(const GpuNgramArgs args) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  __shared__ float partial[3][kBlockWarpsMax];
  __shared__ double partial_dot[kBlockWarpsMax];
  const uint32_t row = blockIdx.y;
  const uint32_t stream = blockIdx.x;
  const uint32_t vectors = args.hidden / 4;
  const size_t first = (size_t{row} * args.streams + stream) * vectors;
  const size_t first_weight = size_t{stream} * vectors;
  float4 key[kVectors];
  float4 query[kVectors];
  float key_sum = 0;
  float query_sum = 0;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    const bool there = i < vectors;
    key[k] = there ? LoadVector(args.key, first + i) : float4{0, 0, 0, 0};
    query[k] = there ? LoadVector(args.h, first + i) : float4{0, 0, 0, 0};
    key_sum = AddSquares(key[k], key_sum);
    query_sum = AddSquares(query[k], query_sum);
  }
  const float key_factor = NormFactor(BlockSum(key_sum, partial[0]), args.hidden, args.epsilon);
  const float query_factor = NormFactor(BlockSum(query_sum, partial[1]), args.hidden, args.epsilon);
  double dot = 0;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) continue;
    dot = AddProducts(
        NormaliseVector(key[k], key_factor, LoadVector(args.norm_key, first_weight + i)),
        NormaliseVector(query[k], query_factor, LoadVector(args.norm_query, first_weight + i)),
        dot);
  }
  dot = BlockSum(dot, partial_dot);
  const float gate = StreamGate(static_cast<float>(dot / sqrt(static_cast<double>(args.hidden))));
  float sum = 0;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) continue;
    key[k] = MapVector(LoadVector(args.value, size_t{row} * vectors + i),
                       [gate](float v) { return __fmul_rn(gate, v); });
    StoreVector(args.gated, first + i, key[k]);
    sum = AddSquares(key[k], sum);
  }
  const float factor = NormFactor(BlockSum(sum, partial[2]), args.hidden, args.epsilon);
  const RowPlace place = PlaceOf(args.pass, row);
  const size_t in_ring =
      size_t{place.position & (args.pass.ring_rows - 1)} * args.streams * vectors + first_weight;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) continue;
    const float4 x = NormaliseVector(key[k], factor, LoadVector(args.norm_conv, first_weight + i));
    StoreVector(args.conv_in, first + i, x);
    if (args.window) StoreVector(place.segment->ngram_ring, in_ring + i, x);
  }
}

// Block (columns, row): h += G + silu(conv(X)).
__global__ void __launch_bounds__(kConvThreads) NgramConvKernel(const GpuNgramArgs args) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t row = blockIdx.y;
  const uint32_t width = args.streams * args.hidden;
  const uint32_t i = blockIdx.x * kConvThreads + threadIdx.x;
  if (i >= width / 4) return;
  const RowPlace place = PlaceOf(args.pass, row);
  const float* x = args.conv_in + size_t{row} * width;
  float4 acc = {0, 0, 0, 0};
  for (uint32_t tap = 0; tap < args.taps; ++tap) {
    const float* from = EarlierRow(args.pass, place, (args.taps - 1 - tap) * args.dilation, x,
                                   place.segment->ngram_ring, width);
    if (from == nullptr) continue;
    const float4 w = LoadVector(args.conv, size_t{tap} * (width / 4) + i);
    const float4 v = LoadVector(from, i);
    acc = {__fmaf_rn(w.x, v.x, acc.x), __fmaf_rn(w.y, v.y, acc.y), __fmaf_rn(w.z, v.z, acc.z),
           __fmaf_rn(w.w, v.w, acc.w)};
  }
  const size_t at = size_t{row} * (width / 4) + i;
  const float4 added = MapVector(LoadVector(args.gated, at), acc,
                                 [](float g, float c) { return __fadd_rn(g, SiluOf(c)); });
  StoreVector(args.h, at, MapVector(LoadVector(args.h, at), added, [](float h, float v) {
                return __fadd_rn(h, v);
              }));
}

}  // namespace

absl::Status LaunchNgram(const GpuNgramArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckNgram(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t vectors = args.hidden / 4;
  const dim3 streams(args.streams, args.pass.rows);
  constexpr std::string_view kGate = "launch of the n-gram gates";
  HEARTH_RETURN_IF_ERROR(
      vectors <= 1024 ? LaunchOverlapping(kGate, NgramGateKernel<1>,
                                          {.blocks = streams, .threads = (vectors + 31) / 32 * 32},
                                          stream, args)
                      : LaunchOverlapping(kGate, NgramGateKernel<8>,
                                          {.blocks = streams, .threads = 512}, stream, args));
  const uint32_t width = args.streams * args.hidden;
  const dim3 columns((width / 4 + kConvThreads - 1) / kConvThreads, args.pass.rows);
  HEARTH_RETURN_IF_ERROR(LaunchOverlapping("launch of the n-gram convolution", NgramConvKernel,
                                           {.blocks = columns, .threads = kConvThreads}, stream,
                                           args));
  if (args.window) return absl::OkStatus();
  return LaunchRingStore(args.pass, NgramRing{}, args.conv_in, width, stream);
}

}  // namespace hearth
