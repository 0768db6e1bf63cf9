// The begin and the end of a window on the card, and what it awaits from the host: lists, outputs.
#include <algorithm>
#include <cstddef>

#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/exchange/layer_words.cuh"
#include "gpu_kernels/ops/exchange/output_wait.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kTakeThreadsMax = 800;
constexpr uint32_t kBeginThreads = 256;
constexpr uint32_t kRuleWords = sizeof(StreamRule) / sizeof(uint64_t);
static_assert(offsetof(CardState, rule) % sizeof(uint64_t) == 0);

// What the card's table is to become, in host memory.
struct HostTable {
  const StreamRule* rule;
  const TableChange* changes;
  const uint64_t* entries;
  uint32_t entry_count;  // 0: the card has no table
};

// One block.
__global__ void BeginWindowKernel(const uint64_t* window, HostTable from, uint64_t* table,
                                  CardState* state, WindowStamps stamps) {
  const uint64_t word = LoadRelaxed(window);
  const uint32_t change_count = PayloadOf(word);
  if (threadIdx.x == 0) {
    state->sequence = TagOf(word);
    state->failed = 0;
    state->rows_wanted = CardState::kRowsNotDecided;
    state->outputs_seen = 0;
    if (from.entry_count != 0) state->streams_left = from.rule->experts_max;
    Stamp(stamps, TagOf(word), WindowStamp::kBegin);
  }
  for (uint32_t i = threadIdx.x; i < kRuleWords && from.entry_count != 0; i += blockDim.x) {
    reinterpret_cast<uint64_t*>(&state->rule)[i] = reinterpret_cast<const uint64_t*>(from.rule)[i];
  }
  if (change_count > kTableChangesMax) {
    for (uint32_t i = threadIdx.x; i < from.entry_count; i += blockDim.x) {
      table[i] = from.entries[i];
    }
    return;
  }
  for (uint32_t i = threadIdx.x; i < change_count; i += blockDim.x) {
    const TableChange change = from.changes[i];
    table[change.index] = change.entry;
  }
}

// One thread.
__global__ void EndWindowKernel(uint64_t* end, const CardState* state, WindowStamps stamps) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  Stamp(stamps, state->sequence, WindowStamp::kEnd);
  StoreRelease(end, TaggedWord(state->sequence, 0));
}

constexpr uint32_t kListWordsMax = 1 + 3 * kExchangeEntriesMax;
constexpr uint32_t kOwnWords = 2;  // of a list, looked at by one thread

// A list as a block receives it. Each thread looks at words of its own, since lanes that look at
// one word over the link would each pay for it.
struct ListInbox {
  uint64_t header;
  uint32_t payload[kListWordsMax];
};

// One look at all words, of which the header says how many count: whether they are there. All
// threads call and get the same answer.
__device__ bool LookAtList(const uint64_t* list, uint32_t word_count, uint32_t sequence,
                           ListInbox* inbox) {
  uint64_t word[kOwnWords];
  for (uint32_t i = 0; i < kOwnWords; ++i) {
    const uint32_t at = threadIdx.x + i * blockDim.x;
    word[i] = at < word_count ? LoadRelaxed(list + at) : 0;
  }
  if (threadIdx.x == 0) inbox->header = word[0];
  __syncthreads();
  const ListHeader header = UnpackHeader(PayloadOf(inbox->header));
  const uint32_t used = 1 + 2 * header.item_count + header.entry_count;
  bool here = TagOf(inbox->header) == sequence;
  for (uint32_t i = 0; i < kOwnWords; ++i) {
    const uint32_t at = threadIdx.x + i * blockDim.x;
    if (!here || at >= used) continue;
    here = TagOf(word[i]) == sequence;
    inbox->payload[at] = PayloadOf(word[i]);
  }
  return __syncthreads_and(here) != 0;
}

// False when time is up.
__device__ bool AwaitList(const uint64_t* list, uint32_t word_count, uint32_t sequence,
                          uint64_t wait_ns_max, ListInbox* inbox) {
  const uint64_t start_ns = GlobalTimerNs();
  while (!LookAtList(list, word_count, sequence, inbox)) {
    const bool is_late = threadIdx.x == 0 && GlobalTimerNs() - start_ns >= wait_ns_max;
    if (__syncthreads_or(is_late) != 0) return false;
  }
  return true;
}

__device__ void PlaceList(const ListInbox& inbox, const ListHeader& header,
                          const ListTarget& target) {
  for (uint32_t i = threadIdx.x; i < header.item_count; i += blockDim.x) {
    const uint32_t low = inbox.payload[1 + 2 * i];
    const uint32_t high = inbox.payload[2 + 2 * i];
    target.items[i] = {.blob = reinterpret_cast<const std::byte*>(ItemAddress(low, high)),
                       .entry_begin = ItemEntryBegin(high),
                       .entry_count = ItemEntryCount(high)};
  }
  for (uint32_t i = threadIdx.x; i < header.entry_count; i += blockDim.x) {
    const ExpertFfnEntry entry = UnpackEntry(inbox.payload[1 + 2 * header.item_count + i]);
    target.entries[i] = entry;
    target.on_card[entry.y_row] = 1;
  }
}

// One block. `word_count`: of the longest list of so many rows.
__global__ void __launch_bounds__(kTakeThreadsMax)
    TakeListKernel(LayerWords words, const uint64_t* list, uint32_t word_count, ListTarget target,
                   ExchangeStage stage) {
  __shared__ ListInbox inbox;
  // The sequence number is older than the launch before this one, and a look does no harm: so the
  // first trip over the link passes while that launch ends. The flags may be those of the layer
  // before, if they are just being written: then the look is in vain or missing, and no more.
  const bool is_late = stage == ExchangeStage::kLate;
  const uint32_t sequence = words.state->sequence;
  bool here = false;
  if (!is_late || (words.state->flags & kListLateFollows) != 0) {
    here = LookAtList(list, word_count, sequence, &inbox);
  }
  AwaitLaunchBefore();
  AllowLaunchAfter();
  if (threadIdx.x == 0) {
    Stamp(words, sequence, is_late ? ExchangeStamp::kLateBegin : ExchangeStamp::kHitsBegin);
  }
  for (uint32_t i = threadIdx.x; i < target.on_card_count; i += blockDim.x) target.on_card[i] = 0;
  const bool comes =
      words.state->failed == 0 && (!is_late || (words.state->flags & kListLateFollows) != 0);
  // The barriers in here also part the reads of `failed` from its write at the end.
  if (comes && !here) here = AwaitList(list, word_count, sequence, words.wait_ns_max, &inbox);
  __syncthreads();
  ListHeader header = {};
  if (comes && here) header = UnpackHeader(PayloadOf(inbox.header));
  const bool aborted = (header.flags & kListAborted) != 0;
  if (aborted) header = {};
  PlaceList(inbox, header, target);
  if (threadIdx.x != 0) return;
  if (comes && (!here || aborted)) Fail(words, sequence, aborted ? ExchangeStage::kNone : stage);
  *target.counts = {.items = header.item_count, .entries = header.entry_count};
  if (!is_late) words.state->flags = header.flags;
  Stamp(words, sequence, is_late ? ExchangeStamp::kLateEnd : ExchangeStamp::kHitsEnd);
}

// One thread.
__global__ void AwaitOutputsKernel(OutputWait wait) {
  AwaitLaunchBefore();  // it may be the one that says whether outputs follow
  AllowLaunchAfter();
  AwaitOutputs(wait, true);
}

absl::Status LaunchTake(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                        ExchangeStage stage, CudaStreamView stream) {
  const bool is_late = stage == ExchangeStage::kLate;
  const char* what = is_late ? "late list" : "list of hits";
  HEARTH_RETURN_IF_ERROR(CheckCall(exchange, layer, rows, what));
  const ExchangeLayout& l = exchange.layout();
  if (!is_late && l.shape.expert_count != 0) {
    return absl::FailedPreconditionError(
        "list of hits: this exchange finds them on the card, in its table");
  }
  const CardList list = is_late ? exchange.late() : exchange.hits();
  const uint32_t entries = rows * l.shape.ranks;
  const ListTarget target = {.items = list.items,
                             .entries = list.entries,
                             .counts = is_late ? &exchange.state()->late : &exchange.state()->hits,
                             .on_card = exchange.on_card(),
                             .on_card_count = is_late ? 0 : l.entries_max()};
  const uint32_t word_count = 1 + 3 * entries;
  const uint32_t threads = std::min(kTakeThreadsMax, (word_count + 31) / 32 * 32);
  return LaunchOverlapping(
      what, TakeListKernel, {.blocks = 1, .threads = threads}, stream, WordsOf(exchange, layer),
      LayerWordsAt(exchange, layer, is_late ? l.late_offset_bytes : l.hits_offset_bytes),
      word_count, target, stage);
}

WindowStamps StampsOf(const WindowExchange& exchange) {
  return {.first = reinterpret_cast<uint64_t*>(exchange.mapped() +
                                               exchange.layout().WindowStampsOffsetBytes(0)),
          .stride = StampStride(exchange)};
}

}  // namespace

absl::Status LaunchBeginWindow(const WindowExchange& exchange, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(exchange.gpu()));
  const ExchangeLayout& l = exchange.layout();
  const std::byte* const mapped = exchange.mapped();
  const HostTable from = {
      .rule = reinterpret_cast<const StreamRule*>(mapped + l.rule_offset_bytes),
      .changes = reinterpret_cast<const TableChange*>(mapped + l.changes_offset_bytes),
      .entries = reinterpret_cast<const uint64_t*>(mapped + l.table_offset_bytes),
      .entry_count = l.table_count()};
  BeginWindowKernel<<<1, kBeginThreads, 0, stream.get()>>>(
      reinterpret_cast<const uint64_t*>(mapped + l.window_offset_bytes), from, exchange.table(),
      exchange.state(), StampsOf(exchange));
  return CudaStatus(cudaGetLastError(), "begin of a window");
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
  return LaunchOverlapping("outputs", AwaitOutputsKernel, {.blocks = 1, .threads = 1}, stream,
                           exchange.output_wait(layer));
}

absl::Status LaunchEndWindow(const WindowExchange& exchange, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(exchange.gpu()));
  auto* const end =
      reinterpret_cast<uint64_t*>(exchange.mapped() + exchange.layout().end_offset_bytes);
  return LaunchOverlapping("end of a window", EndWindowKernel, {.blocks = 1, .threads = 1}, stream,
                           end, exchange.state(), StampsOf(exchange));
}

}  // namespace hearth
