// The card's side of the game.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/exchange/card_state.h"
#include "tests/gpu_kernels/exchange/play_layer.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 256;

__device__ void Fill(uint64_t digest, PlayPart part, const void* words, uint32_t count) {
  auto* to = static_cast<uint32_t*>(const_cast<void*>(words));
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) to[i] = PlayWord(digest, part, i);
}

__device__ void FillAll(uint64_t digest, const PublishArgs& args, uint32_t ranks, uint32_t hidden) {
  const uint32_t entries = args.rows * ranks;
  for (uint32_t i = threadIdx.x; i < entries; i += kThreads) {
    const_cast<uint32_t*>(args.expert)[i] = PlayExpert(digest, i);
  }
  const uint32_t blocks = hidden / 32;
  Fill(digest, PlayPart::kWeight, args.weight, entries);
  Fill(digest, PlayPart::kQ, args.u.q, args.rows * hidden / 4);
  Fill(digest, PlayPart::kScale, args.u.scale, args.rows * blocks);
  Fill(digest, PlayPart::kSum16, args.u.sum16, args.rows * blocks * 2);
  Fill(digest, PlayPart::kRotatedQ, args.u_rotated.q, args.rows * hidden / 4);
  Fill(digest, PlayPart::kRotatedScale, args.u_rotated.scale, args.rows);
  Fill(digest, PlayPart::kRotatedSum, args.u_rotated.sum, args.rows);
  Fill(digest, PlayPart::kX, args.x, args.rows * hidden);
}

__global__ void PlayStartKernel(const CardState* state, PlayBuffers buffers, uint32_t ranks,
                                uint32_t hidden) {
  const uint64_t digest = PlayMix(state->sequence);
  FillAll(digest, buffers.args, ranks, hidden);
  if (threadIdx.x == 0) *buffers.digest = digest;
}

__device__ uint64_t ListTerms(const CardList& list, PlayPart item_part, PlayPart entry_part) {
  uint64_t sum = 0;
  for (uint32_t i = threadIdx.x; i < *list.item_count; i += kThreads) {
    const ExpertFfnItem item = list.items[i];
    sum += PlayItemTerm(item_part, i, reinterpret_cast<uint64_t>(item.blob), item.entry_begin,
                        item.entry_count);
  }
  for (uint32_t i = threadIdx.x; i < *list.entry_count; i += kThreads) {
    sum += PlayTerm(entry_part, i, list.entries[i].x_row, list.entries[i].y_row);
  }
  return sum;
}

__global__ void PlayLayerKernel(CardList hits, CardList late, const uint8_t* on_card,
                                const float* output, PlayBuffers buffers, uint32_t ranks,
                                uint32_t hidden) {
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) sum = *buffers.digest;
  __syncthreads();
  uint64_t mine = ListTerms(hits, PlayPart::kHitItem, PlayPart::kHitEntry) +
                  ListTerms(late, PlayPart::kLateItem, PlayPart::kLateEntry);
  for (uint32_t e = threadIdx.x; e < buffers.args.rows * ranks; e += kThreads) {
    if (on_card[e] != 0) {
      mine += PlayTerm(PlayPart::kOnCard, e, on_card[e], 0);
    } else {
      const float* row = output + uint64_t{e} * hidden;
      mine +=
          PlayTerm(PlayPart::kOutput, e, __float_as_uint(row[0]), __float_as_uint(row[hidden - 1]));
    }
  }
  atomicAdd(&sum, static_cast<unsigned long long>(mine));
  __syncthreads();
  const uint64_t digest = PlayMix(sum);
  FillAll(digest, buffers.args, ranks, hidden);
  if (threadIdx.x == 0) *buffers.digest = digest;
}

}  // namespace

absl::Status LaunchPlayStart(const WindowExchange& exchange, const PlayBuffers& buffers,
                             CudaStreamView stream) {
  const ExchangeShape& shape = exchange.layout().shape;
  PlayStartKernel<<<1, kThreads, 0, stream.get()>>>(exchange.state(), buffers, shape.ranks,
                                                    shape.hidden);
  return CudaStatus(cudaGetLastError(), "start of the game");
}

absl::Status LaunchPlayLayer(const WindowExchange& exchange, LayerId layer,
                             const PlayBuffers& buffers, CudaStreamView stream) {
  const ExchangeShape& shape = exchange.layout().shape;
  PlayLayerKernel<<<1, kThreads, 0, stream.get()>>>(exchange.hits(), exchange.late(),
                                                    exchange.on_card(), exchange.host_output(layer),
                                                    buffers, shape.ranks, shape.hidden);
  return CudaStatus(cudaGetLastError(), "layer of the game");
}

}  // namespace hearth
