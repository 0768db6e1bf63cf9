// What the kernels of the exchange have in common. Memory order on the card: words are read and
// written by relaxed system-wide accesses and prove themselves; a word that vouches for plain data
// is written with release semantics after the block's barrier, and read with acquire semantics.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/exchange/card_state.h"
#include "gpu_kernels/ops/exchange/exchange_words.h"
#include "gpu_kernels/ops/exchange/output_wait.h"
#include "gpu_kernels/ops/exchange/system_memory.cuh"
#include "gpu_kernels/ops/exchange/window_exchange.h"

namespace hearth {

__device__ inline void Stamp(const LayerWords& words, uint32_t sequence, ExchangeStamp stamp) {
  StoreRelaxed(
      words.stamps + sequence % kStampWindows * words.stamp_stride + static_cast<uint32_t>(stamp),
      GlobalTimerNs());
}

// Where a window's own stamps go.
struct WindowStamps {
  uint64_t* first;  // of window 0
  uint32_t stride;
};

__device__ inline void Stamp(const WindowStamps& stamps, uint32_t sequence, WindowStamp stamp) {
  StoreRelaxed(
      stamps.first + sequence % kStampWindows * stamps.stride + static_cast<uint32_t>(stamp),
      GlobalTimerNs());
}

// The window has failed; the first to say so says where.
__device__ inline void Fail(const LayerWords& words, uint32_t sequence, ExchangeStage stage) {
  if (words.state->failed != 0) return;
  words.state->failed = 1;
  if (stage == ExchangeStage::kNone) return;
  StoreRelaxed(words.error, TaggedWord(sequence, PackError(words.layer, stage)));
}

// Where a list of the layer goes on the card.
struct ListTarget {
  ExpertFfnItem* items;
  ExpertFfnEntry* entries;
  ListCounts* counts;
  uint8_t* on_card;
  uint32_t on_card_count;  // bytes to clear first; 0 for a second list
};

// Words from one window's stamps to those of the next.
inline uint32_t StampStride(const WindowExchange& exchange) {
  return static_cast<uint32_t>(exchange.layout().stamp_window_bytes() / sizeof(uint64_t));
}

inline LayerWords WordsOf(const WindowExchange& exchange, LayerId layer) {
  return exchange.output_wait(layer).words;
}

inline uint64_t* LayerWordsAt(const WindowExchange& exchange, LayerId layer,
                              uint64_t offset_bytes) {
  return reinterpret_cast<uint64_t*>(
      exchange.mapped() + exchange.layout().LayerOffsetBytes(layer.value) + offset_bytes);
}

inline absl::Status CheckCall(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                              const char* what) {
  const ExchangeShape& shape = exchange.layout().shape;
  if (layer.value < shape.layer_count && rows >= 1 && rows <= shape.rows_max) {
    return SelectGpu(exchange.gpu());
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": layer ", layer.value, " with ", rows, " rows: the exchange has ",
                   shape.layer_count, " layers and takes 1 to ", shape.rows_max, " rows"));
}

}  // namespace hearth
