// The kernels of the exchange. Memory order on the card: words are read and written by relaxed
// system-wide accesses and prove themselves; a word that vouches for plain data is written with
// release semantics after the block's barrier, and read with acquire semantics.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/exchange/card_state.h"
#include "gpu_kernels/ops/exchange/exchange_words.h"
#include "gpu_kernels/ops/exchange/system_memory.cuh"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kPublishThreads = 256;
constexpr uint32_t kTakeThreadsMax = 512;
constexpr uint32_t kPublishParts = 8;  // arrays that may be published

// What every kernel of a layer gets.
struct LayerWords {
  CardState* state;
  uint64_t* error;
  uint64_t* stamps;  // of layer and window 0; windows are stamp_stride words apart
  uint32_t stamp_stride;
  uint32_t layer;
  uint64_t wait_ns_max;
};

__device__ void Stamp(const LayerWords& words, uint32_t sequence, ExchangeStamp stamp) {
  StoreRelaxed(
      words.stamps + sequence % kStampWindows * words.stamp_stride + static_cast<uint32_t>(stamp),
      GlobalTimerNs());
}

// The window has failed; the first to say so says where.
__device__ void Fail(const LayerWords& words, uint32_t sequence, ExchangeStage stage) {
  if (words.state->failed != 0) return;
  words.state->failed = 1;
  if (stage == ExchangeStage::kNone) return;
  StoreRelaxed(words.error, TaggedWord(sequence, PackError(words.layer, stage)));
}

__global__ void BeginWindowKernel(const uint64_t* window, CardState* state) {
  state->sequence = TagOf(LoadRelaxed(window));
  state->failed = 0;
}

struct PublishPart {
  const std::byte* from;  // card, 16-byte aligned as the other
  std::byte* to;          // host
  uint32_t bytes;         // a multiple of 4
};
struct PublishParts {
  PublishPart part[kPublishParts];
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

// Block 0 publishes the routes, each of the others its share of the rows.
__global__ void __launch_bounds__(kPublishThreads)
    PublishKernel(LayerWords words, const uint32_t* expert, uint32_t entry_count, uint64_t* routes,
                  uint64_t* arrived, const __grid_constant__ PublishParts parts) {
  const uint32_t sequence = words.state->sequence;
  if (blockIdx.x == 0) {
    for (uint32_t i = threadIdx.x; i < entry_count; i += blockDim.x) {
      StoreRelaxed(routes + i, TaggedWord(sequence, expert[i]));
    }
    return;
  }
  const uint32_t block = blockIdx.x - 1;
  const bool stamps = block == 0 && threadIdx.x == 0;
  if (stamps) Stamp(words, sequence, ExchangeStamp::kPublishBegin);
  for (uint32_t i = 0; i < parts.count; ++i) {
    CopyShare(parts.part[i], block * blockDim.x + threadIdx.x, kPublishBlocks * blockDim.x);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  StoreRelease(arrived + block, TaggedWord(sequence, 0));
  if (stamps) Stamp(words, sequence, ExchangeStamp::kPublishEnd);
}

struct ListTarget {
  ExpertFfnItem* items;
  ExpertFfnEntry* entries;
  ListCounts* counts;
  uint8_t* on_card;
  uint32_t on_card_count;  // bytes to clear first; 0 for a second list
};

// Waits for the header and, if the list needs it, for word `at` after it. False when time is up.
__device__ bool AwaitListWord(const uint64_t* list, uint32_t at, uint32_t at_end, uint32_t sequence,
                              uint64_t wait_ns_max, ListHeader* header, uint32_t* payload) {
  const uint64_t start_ns = GlobalTimerNs();
  do {
    const uint64_t first = LoadRelaxed(list);
    const uint64_t word = at < at_end ? LoadRelaxed(list + 1 + at) : 0;
    if (TagOf(first) == sequence) {
      *header = UnpackHeader(PayloadOf(first));
      *payload = PayloadOf(word);
      if (at >= 2 * header->item_count + header->entry_count || TagOf(word) == sequence) {
        return true;
      }
    }
  } while (GlobalTimerNs() - start_ns < wait_ns_max);
  return false;
}

// Word `at` of the list to its place; all lanes of the warp call, the low word of an item in an
// even lane.
__device__ void PlaceListWord(const ListHeader& header, uint32_t at, uint32_t payload,
                              const ListTarget& target) {
  const uint32_t high = __shfl_down_sync(0xFFFFFFFFu, payload, 1);
  const uint32_t item_words = 2 * header.item_count;
  if (at < item_words) {
    if (at % 2 != 0) return;
    target.items[at / 2] = {.blob = reinterpret_cast<const std::byte*>(ItemAddress(payload, high)),
                            .entry_begin = ItemEntryBegin(high),
                            .entry_count = ItemEntryCount(high)};
  } else if (at - item_words < header.entry_count) {
    const ExpertFfnEntry entry = UnpackEntry(payload);
    target.entries[at - item_words] = entry;
    target.on_card[entry.y_row] = 1;
  }
}

// One block. `word_count`: of the longest list of so many rows, without the header.
__global__ void __launch_bounds__(kTakeThreadsMax)
    TakeListKernel(LayerWords words, const uint64_t* list, uint32_t word_count, ListTarget target,
                   ExchangeStage stage) {
  const uint32_t sequence = words.state->sequence;
  const bool is_late = stage == ExchangeStage::kLate;
  if (threadIdx.x == 0) {
    Stamp(words, sequence, is_late ? ExchangeStamp::kLateBegin : ExchangeStamp::kHitsBegin);
  }
  for (uint32_t i = threadIdx.x; i < target.on_card_count; i += blockDim.x) target.on_card[i] = 0;
  const bool comes =
      words.state->failed == 0 && (!is_late || (words.state->flags & kListLateFollows) != 0);
  ListHeader header = {};
  uint32_t payload = 0;
  bool expired = false;
  if (comes) {
    expired = !AwaitListWord(list, threadIdx.x, word_count, sequence, words.wait_ns_max, &header,
                             &payload);
  }
  // A block's threads leave together, so that the first cannot mark the window as failed while
  // another still reads the mark.
  expired = __syncthreads_or(expired) != 0;
  const bool aborted = (header.flags & kListAborted) != 0;
  if (expired || aborted) header = {};
  const uint32_t used = 2 * header.item_count + header.entry_count;
  for (uint32_t at = threadIdx.x; at - threadIdx.x % 32 < used; at += blockDim.x) {
    if (at != threadIdx.x) {
      expired |=
          !AwaitListWord(list, at, word_count, sequence, words.wait_ns_max, &header, &payload);
    }
    PlaceListWord(header, at, payload, target);
  }
  expired = __syncthreads_or(expired) != 0;
  if (threadIdx.x != 0) return;
  if (expired || aborted) {
    header = {};
    Fail(words, sequence, aborted ? ExchangeStage::kNone : stage);
  }
  *target.counts = {.items = header.item_count, .entries = header.entry_count};
  if (!is_late) words.state->flags = header.flags;
  Stamp(words, sequence, is_late ? ExchangeStamp::kLateEnd : ExchangeStamp::kHitsEnd);
}

__global__ void AwaitOutputsKernel(LayerWords words, const uint64_t* outputs) {
  const uint32_t sequence = words.state->sequence;
  Stamp(words, sequence, ExchangeStamp::kOutputsBegin);
  if (words.state->failed == 0 && (words.state->flags & kListOutputsFollow) != 0) {
    const uint64_t start_ns = GlobalTimerNs();
    uint64_t word = LoadAcquire(outputs);
    while (TagOf(word) != sequence && GlobalTimerNs() - start_ns < words.wait_ns_max) {
      word = LoadAcquire(outputs);
    }
    if (TagOf(word) != sequence) {
      Fail(words, sequence, ExchangeStage::kOutputs);
    } else if (PayloadOf(word) != 0) {
      Fail(words, sequence, ExchangeStage::kNone);
    }
  }
  Stamp(words, sequence, ExchangeStamp::kOutputsEnd);
}

LayerWords WordsOf(const WindowExchange& exchange, LayerId layer) {
  const ExchangeLayout& l = exchange.layout();
  return {.state = exchange.state(),
          .error = reinterpret_cast<uint64_t*>(exchange.mapped() + l.error_offset_bytes),
          .stamps =
              reinterpret_cast<uint64_t*>(exchange.mapped() + l.StampsOffsetBytes(0, layer.value)),
          .stamp_stride = l.shape.layer_count * kExchangeStamps,
          .layer = layer.value,
          .wait_ns_max = exchange.wait_ns_max()};
}

uint64_t* LayerWordsAt(const WindowExchange& exchange, LayerId layer, uint64_t offset_bytes) {
  return reinterpret_cast<uint64_t*>(
      exchange.mapped() + exchange.layout().LayerOffsetBytes(layer.value) + offset_bytes);
}

absl::Status CheckCall(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                       const char* what) {
  const ExchangeShape& shape = exchange.layout().shape;
  if (layer.value < shape.layer_count && rows >= 1 && rows <= shape.rows_max) {
    return SelectGpu(exchange.gpu());
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": layer ", layer.value, " with ", rows, " rows: the exchange has ",
                   shape.layer_count, " layers and takes 1 to ", shape.rows_max, " rows"));
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
  add(args.weight, l.weight_offset_bytes, l.shape.ranks * 4);
  return parts;
}

absl::Status LaunchTake(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                        ExchangeStage stage, CudaStreamView stream) {
  const bool is_late = stage == ExchangeStage::kLate;
  const char* what = is_late ? "late list" : "list of hits";
  HEARTH_RETURN_IF_ERROR(CheckCall(exchange, layer, rows, what));
  const ExchangeLayout& l = exchange.layout();
  const CardList list = is_late ? exchange.late() : exchange.hits();
  const uint32_t entries = rows * l.shape.ranks;
  const ListTarget target = {.items = list.items,
                             .entries = list.entries,
                             .counts = is_late ? &exchange.state()->late : &exchange.state()->hits,
                             .on_card = exchange.on_card(),
                             .on_card_count = is_late ? 0 : l.entries_max()};
  const uint32_t threads = std::min(kTakeThreadsMax, (3 * entries + 31) / 32 * 32);
  TakeListKernel<<<1, threads, 0, stream.get()>>>(
      WordsOf(exchange, layer),
      LayerWordsAt(exchange, layer, is_late ? l.late_offset_bytes : l.hits_offset_bytes),
      3 * entries, target, stage);
  return CudaStatus(cudaGetLastError(), what);
}

}  // namespace

absl::Status LaunchBeginWindow(const WindowExchange& exchange, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(exchange.gpu()));
  BeginWindowKernel<<<1, 1, 0, stream.get()>>>(
      reinterpret_cast<const uint64_t*>(exchange.mapped() + exchange.layout().window_offset_bytes),
      exchange.state());
  return CudaStatus(cudaGetLastError(), "begin of a window");
}

absl::Status LaunchPublish(const WindowExchange& exchange, LayerId layer, const PublishArgs& args,
                           CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckCall(exchange, layer, args.rows, "routes"));
  const PublishParts parts = PartsOf(exchange, layer, args);
  for (uint32_t i = 0; i < parts.count; ++i) {
    if (parts.part[i].from == nullptr ||
        reinterpret_cast<uintptr_t>(parts.part[i].from) % 16 != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", layer.value, ": array ", i,
                       " to publish is missing or not aligned to 16 bytes"));
    }
  }
  const ExchangeLayout& l = exchange.layout();
  PublishKernel<<<1 + kPublishBlocks, kPublishThreads, 0, stream.get()>>>(
      WordsOf(exchange, layer), args.expert, args.rows * l.shape.ranks,
      LayerWordsAt(exchange, layer, l.routes_offset_bytes),
      LayerWordsAt(exchange, layer, l.arrived_offset_bytes), parts);
  return CudaStatus(cudaGetLastError(), "routes");
}

absl::Status LaunchTakeHits(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                            CudaStreamView stream) {
  return LaunchTake(exchange, layer, rows, ExchangeStage::kHits, stream);
}

absl::Status LaunchTakeLate(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                            CudaStreamView stream) {
  return LaunchTake(exchange, layer, rows, ExchangeStage::kLate, stream);
}

absl::Status LaunchAwaitOutputs(const WindowExchange& exchange, LayerId layer,
                                CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckCall(exchange, layer, 1, "outputs"));
  AwaitOutputsKernel<<<1, 1, 0, stream.get()>>>(
      WordsOf(exchange, layer),
      LayerWordsAt(exchange, layer, exchange.layout().outputs_offset_bytes));
  return CudaStatus(cudaGetLastError(), "outputs");
}

}  // namespace hearth
