// What the card tells the host of a layer: routes, with which it also finds its hits, and rows.
#include <algorithm>

#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/exchange/find_hits.cuh"
#include "gpu_kernels/ops/exchange/layer_words.cuh"
#include "gpu_kernels/ops/mixer/activate_quantize.cuh"
#include "gpu_kernels/ops/mixer/router_choice.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kPublishThreads = 256;
constexpr uint32_t kPublishPartsMax = 8;  // arrays that may be published

struct PublishPart {
  const std::byte* from;  // card, 16-byte aligned as the other
  std::byte* to;          // host
  uint32_t bytes;         // a multiple of 4
};
struct PublishParts {
  PublishPart part[kPublishPartsMax];
  uint32_t count;
};

__device__ void CopyShare(const PublishPart& part, uint32_t thread, uint32_t thread_count) {
  const uint32_t quads = part.bytes / 16;
  for (uint32_t i = thread; i < quads; i += thread_count) {
    reinterpret_cast<uint4*>(part.to)[i] = reinterpret_cast<const uint4*>(part.from)[i];
  }
  for (uint32_t i = quads * 4 + thread; i < part.bytes / 4; i += thread_count) {
    reinterpret_cast<uint32_t*>(part.to)[i] = reinterpret_cast<const uint32_t*>(part.from)[i];
  }
}

struct RouteWords {
  const uint32_t* expert;  // card, (count)
  const float* weight;
  uint64_t* expert_words;  // host, (count)
  uint64_t* weight_words;
  uint32_t count;
};

// Threads: at least one for each entry. Tells the blocks that publish rows whether the host wants
// them.
__device__ void PublishRoutes(const LayerWords& words, const RouteWords& routes,
                              const HitSearch& search) {
  const uint32_t sequence = words.state->sequence;
  uint32_t id = 0;
  if (threadIdx.x < routes.count) {
    id = routes.expert[threadIdx.x];
    const float weight = routes.weight[threadIdx.x];
    StoreRelaxed(routes.expert_words + threadIdx.x, TaggedWord(sequence, id));
    StoreRelaxed(routes.weight_words + threadIdx.x, TaggedWord(sequence, __float_as_uint(weight)));
  }
  if (threadIdx.x == 0) Stamp(words, sequence, ExchangeStamp::kPublishBegin);
  if (search.table == nullptr) return;
  __shared__ HitScratch scratch;
  const bool host_computes = FindHits(search, id, routes.count, &scratch, words.state);
  if (threadIdx.x == 0) {
    atomicExch(&words.state->rows_wanted, words.layer * 2 + (host_computes ? 1 : 0));
    Stamp(words, sequence, ExchangeStamp::kHitsBegin);
    Stamp(words, sequence, ExchangeStamp::kHitsEnd);
  }
}

// Waits for the other blocks' PublishRoutes(), which does not wait for this.
__device__ bool RowsAreWanted(const LayerWords& words) {
  auto* const wanted = const_cast<volatile uint32_t*>(&words.state->rows_wanted);
  uint32_t word = *wanted;
  while (word >> 1 != words.layer) word = *wanted;
  return (word & 1) != 0;
}

// That the rows have arrived takes a microsecond to make sure of, which passes while the routes are
// chosen; it is said only to a host that waits for it. `asks`: a block beside these knows that, and
// says so.
__device__ void PublishRows(const LayerWords& words, uint32_t block, bool asks, uint64_t* arrived,
                            const PublishParts& parts) {
  for (uint32_t i = 0; i < parts.count; ++i) {
    CopyShare(parts.part[i], block * blockDim.x + threadIdx.x, kPublishBlocks * blockDim.x);
  }
  __syncthreads();
  AllowLaunchAfter();
  if (threadIdx.x != 0) return;
  const uint32_t sequence = words.state->sequence;
  __threadfence_system();
  if (asks && !RowsAreWanted(words)) return;
  StoreRelaxed(arrived + block, TaggedWord(sequence, 0));
  if (block == 0) Stamp(words, sequence, ExchangeStamp::kPublishEnd);
}

__global__ void PublishAheadKernel(const CardState* state, const uint32_t* expert,
                                   uint64_t* ahead) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  StoreRelaxed(ahead + threadIdx.x, TaggedWord(state->sequence, expert[threadIdx.x]));
}

// What the blocks of a publication do, in this order.
struct PublishBlocks {
  uint32_t routes = 0;  // 0 or 1
  uint32_t rows = 0;    // 0 or kPublishBlocks
  uint32_t activation = 0;
};

// A vector for each thread of these blocks, row after row.
__device__ void ActivateShare(const GpuActivateQuantizeArgs& args, uint32_t block) {
  const uint32_t padded = PaddedVectors(args.cols);
  const uint32_t at = block * blockDim.x + threadIdx.x;
  const uint32_t row = at / padded;
  ActivateVector(args, row, at - row * padded, row < args.rows);
}

// Blocks start in order, so that the one that publishes the routes waits for none. With kPerLane
// != 0 it makes the router's choice before, a warp for each row (router_choice.cuh).
template <uint32_t kPerLane>
__global__ void __launch_bounds__(kExchangeEntriesMax)
    PublishKernel(LayerWords words, PublishBlocks blocks, GpuRouterArgs router, RouteWords routes,
                  HitSearch search, GpuActivateQuantizeArgs activation, uint64_t* arrived,
                  const __grid_constant__ PublishParts parts) {
  AwaitLaunchBefore();
  if (blockIdx.x < blocks.routes) {
    if constexpr (kPerLane != 0) {
      __shared__ Candidate room[kExchangeRowsMax][kWarpLanes];
      const uint32_t warp = threadIdx.x / kWarpLanes;
      if (warp < router.rows) (void)ChooseExperts<kPerLane>(router, warp, room[warp]);
      __syncthreads();
    }
    AllowLaunchAfter();
    PublishRoutes(words, routes, search);
  } else if (blockIdx.x < blocks.routes + blocks.rows) {
    PublishRows(words, blockIdx.x - blocks.routes, blocks.routes != 0 && search.table != nullptr,
                arrived, parts);
  } else {
    ActivateShare(activation, blockIdx.x - blocks.routes - blocks.rows);
    AllowLaunchAfter();
  }
}

// The arrays that are published, with where they go.
PublishParts PartsOf(const WindowExchange& exchange, LayerId layer, const PublishArgs& args) {
  const ExchangeLayout& l = exchange.layout();
  const uint32_t hidden = l.shape.hidden;
  const uint32_t blocks = ActivationBlocks(hidden);
  std::byte* const set = exchange.mapped() + l.SetOffsetBytes(layer.value);
  PublishParts parts{};
  const auto add = [&](const void* from, uint64_t to_offset_bytes, uint32_t row_bytes) {
    parts.part[parts.count++] = {.from = static_cast<const std::byte*>(from),
                                 .to = set + to_offset_bytes,
                                 .bytes = args.rows * row_bytes};
  };
  if (l.shape.forms.quantized) {
    add(args.u.q, l.q_offset_bytes, blocks * 32);
    add(args.u.scale, l.scale_offset_bytes, blocks * 4);
    add(args.u.sum16, l.sum16_offset_bytes, blocks * 8);
  }
  if (l.shape.forms.rotated) {
    add(args.u_rotated.q, l.rotated_q_offset_bytes, hidden);
    add(args.u_rotated.scale, l.rotated_scale_offset_bytes, 4);
    add(args.u_rotated.sum, l.rotated_sum_offset_bytes, 4);
  }
  if (l.shape.forms.fp32) add(args.x, l.x_offset_bytes, hidden * 4);
  return parts;
}

absl::Status CheckParts(const PublishParts& parts, LayerId layer) {
  for (uint32_t i = 0; i < parts.count; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(parts.part[i].from);
    if (address != 0 && address % 16 == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer ", layer.value, ": array ", i,
                                                   " to publish is missing or not aligned to 16 "
                                                   "bytes"));
  }
  return absl::OkStatus();
}

HitSearch SearchOf(const WindowExchange& exchange, LayerId layer) {
  const ExchangeShape& shape = exchange.layout().shape;
  if (shape.expert_count == 0) return {};
  const CardList list = exchange.hits();
  return {.table = exchange.table() + uint64_t{layer.value} * shape.expert_count,
          .ranks = shape.ranks,
          .target = {.items = list.items,
                     .entries = list.entries,
                     .counts = &exchange.state()->hits,
                     .on_card = exchange.on_card(),
                     .on_card_count = 0}};
}

struct Published {
  bool routes = false;
  bool rows = false;
};
absl::Status Launch(const WindowExchange& exchange, LayerId layer, const PublishArgs& args,
                    Published published, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckCall(exchange, layer, args.rows, "publication"));
  const GpuRouterArgs& router = args.router;
  const bool chooses = router.logits != nullptr;
  if (chooses) HEARTH_RETURN_IF_ERROR(CheckRouter(router));
  if (published.routes && (args.expert == nullptr || args.weight == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer.value, ": routes to publish are missing"));
  }
  PublishParts parts{};
  if (published.rows) {
    parts = PartsOf(exchange, layer, args);
    HEARTH_RETURN_IF_ERROR(CheckParts(parts, layer));
  }
  const ExchangeLayout& l = exchange.layout();
  const uint32_t entries = args.rows * l.shape.ranks;
  const uint32_t entry_threads = (entries + 31) / 32 * 32;
  const uint32_t choice_threads = chooses ? router.rows * kWarpLanes : 0;
  const uint32_t threads =
      std::max({published.rows ? kPublishThreads : 0, entry_threads, choice_threads});
  PublishBlocks blocks = {.routes = published.routes ? 1u : 0u,
                          .rows = published.rows ? kPublishBlocks : 0};
  const GpuActivateQuantizeArgs& activation = args.activation;
  if (activation.x != nullptr) {
    HEARTH_RETURN_IF_ERROR(CheckActivateQuantize(activation));
    const uint32_t vectors = activation.rows * PaddedVectors(activation.cols);
    blocks.activation = (vectors + threads - 1) / threads;
  }
  const RouteWords routes = {.expert = args.expert,
                             .weight = args.weight,
                             .expert_words = LayerWordsAt(exchange, layer, l.routes_offset_bytes),
                             .weight_words = LayerWordsAt(exchange, layer, l.weights_offset_bytes),
                             .count = entries};
  const auto kernel = !chooses                                 ? PublishKernel<0>
                      : router.expert_count <= 4 * kWarpLanes  ? PublishKernel<4>
                      : router.expert_count <= 16 * kWarpLanes ? PublishKernel<16>
                                                               : PublishKernel<32>;
  return LaunchOverlapping(
      "publication", kernel,
      {.blocks = blocks.routes + blocks.rows + blocks.activation, .threads = threads}, stream,
      WordsOf(exchange, layer), blocks, router, routes, SearchOf(exchange, layer), activation,
      LayerWordsAt(exchange, layer, l.arrived_offset_bytes), parts);
}

}  // namespace

absl::Status LaunchPublishRoutes(const WindowExchange& exchange, LayerId layer,
                                 const uint32_t* expert, const float* weight, uint32_t rows,
                                 CudaStreamView stream) {
  PublishArgs args;
  args.expert = expert;
  args.weight = weight;
  args.rows = rows;
  return Launch(exchange, layer, args, {.routes = true}, stream);
}

absl::Status LaunchPublishRows(const WindowExchange& exchange, LayerId layer,
                               const PublishArgs& args, CudaStreamView stream) {
  PublishArgs rows = args;
  rows.router = {};
  rows.activation = {};
  return Launch(exchange, layer, rows, {.rows = true}, stream);
}

absl::Status LaunchPublish(const WindowExchange& exchange, LayerId layer, const PublishArgs& args,
                           CudaStreamView stream) {
  return Launch(exchange, layer, args, {.routes = true, .rows = true}, stream);
}

absl::Status LaunchPublishAhead(const WindowExchange& exchange, LayerId layer,
                                const uint32_t* expert, uint32_t rows, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckCall(exchange, layer, rows, "experts ahead"));
  const ExchangeLayout& l = exchange.layout();
  return LaunchOverlapping("experts ahead", PublishAheadKernel,
                           {.blocks = 1, .threads = rows * l.shape.ranks}, stream, exchange.state(),
                           expert, LayerWordsAt(exchange, layer, l.ahead_offset_bytes));
}

}  // namespace hearth
