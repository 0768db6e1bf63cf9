// The host's side of the exchange (exchange_layout.h): waits for what the card publishes, posts
// what it waits for. Knows nothing of CUDA: the memory may be any, and a thread may play the card.
//
// Order of calls for one window; L stands for its layers in the order in which the card takes them:
//   SetEntry and SetStreamRule as needed, BeginWindow, then the launch of the window's work on the
//   card; for each L: AwaitRoutes, then PostHits, AwaitRows, PostLate (exactly if hits said it
//   follows), output, PostOutputs (exactly if hits said so) in any order that suits. Where the card
//   finds the hits: no PostHits, but PostLate (if the card's work has such a stage) and PostOutputs
//   exactly unless all_claimed(), even when there is nothing to tell; AwaitRows only then.
// After an error of any wait: Abort(), and the card runs to the end of the window without waiting.
//
// Memory order. Everything is posted by release stores of whole words and read by acquire loads, so
// that what a thread wrote before a post (or what other threads wrote before it learnt of that by
// acquiring) is seen by whoever has seen the word. Non-temporal stores are not ordered by this on
// x86: who writes outputs that way fences them himself.
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/xt.h"
#include "gpu_kernels/ops/card_claims.h"
#include "gpu_kernels/ops/exchange/exchange_layout.h"
#include "gpu_kernels/ops/exchange/exchange_words.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace hearth {

// What the CPU's experts read of a layer, in the exchange's memory; forms that are not published
// are null. Stays in place while the card waits for something of the layer: until outputs are
// posted. (A card that needs nothing of a layer runs ahead.) Weights: until the next AwaitRoutes.
struct PublishedRows {
  QuantizedRows quantized;        // (rows, hidden)
  XtRows rotated;                 // (rows, hidden)
  const float* x = nullptr;       // (rows, hidden)
  const float* weight = nullptr;  // (rows, ranks): route weights
};

// A list for the card: distinct experts and, grouped by item, their rows.
struct ExpertList {
  std::span<const ExpertFfnItem> items;  // blob: the card's address, 64-byte aligned
  std::span<const ExpertFfnEntry> entries;
};

// What the card is to wait for after the hits of a layer.
struct ExchangeFollows {
  bool late = false;
  bool outputs = false;
};

class ExchangeHost {
 public:
  // `memory`: layout.bytes of zeros at first, 128-byte aligned, outlives this; so does `clock`.
  // `sequence`: of the window before the first.
  ExchangeHost(const ExchangeLayout& layout, std::span<std::byte> memory, Clock& clock,
               uint32_t sequence = 0);

  // Starts the next window: its sequence number, which the card reads when it begins. The card is
  // done with the window before.
  uint32_t BeginWindow();
  uint32_t sequence() const { return sequence_; }

  // What the card's table says from the next window on (card_claims.h; addresses are multiples of
  // 64). Until the card has passed the layer in the window under way, the memory that the entry of
  // that window names stays as it is. Needs expert_count.
  void SetEntry(LayerId layer, ExpertId expert, uint64_t entry);
  // What it says in this window.
  uint64_t entry(LayerId layer, ExpertId expert) const;
  // From the next window on.
  void SetStreamRule(const StreamRule& rule) { rule_ = rule; }

  // The experts that the card chose: (rows, ranks), valid until the next call. DeadlineExceeded
  // when the card has not published them at `deadline_ns` of the clock; its own error when a wait
  // of its own has failed. Names the layer and what was awaited.
  absl::StatusOr<std::span<const uint32_t>> AwaitRoutes(LayerId layer, uint32_t rows,
                                                        int64_t deadline_ns);
  // With what weights: (rows, ranks), of the last AwaitRoutes.
  std::span<const float> weights() const { return std::span(weights_).first(route_count_); }
  // What the card takes of them, (rows, ranks); empty where the host finds the hits.
  std::span<const EntryClaim> claims() const { return claims_; }
  bool all_claimed() const { return !claims_.empty() && finder_.all_claimed(); }
  // Where the rows that those experts read come to lie, and that they are there; after AwaitRoutes
  // of the same layer.
  PublishedRows Rows(LayerId layer, uint32_t rows) const;
  absl::StatusOr<PublishedRows> AwaitRows(LayerId layer, uint32_t rows, int64_t deadline_ns);

  // Experts that `layer` may choose, (rows, ranks), as the layer before it guesses; valid until the
  // next call. Empty when the card has not published them (yet); does not wait.
  std::span<const uint32_t> Ahead(LayerId layer, uint32_t rows);

  // What the card computes at once; possibly nothing. InvalidArgument when the list breaks a bound
  // of exchange_words.h; nothing is posted then.
  absl::Status PostHits(LayerId layer, const ExpertList& list, const ExchangeFollows& follows);
  absl::Status PostLate(LayerId layer, const ExpertList& list);
  // (rows_max * ranks, hidden): the CPU leaves the outputs of entries there that are in no list.
  std::span<float> output(LayerId layer) const;
  void PostOutputs(LayerId layer);

  // Gives the window up: whatever the card waits for in it, it gets an empty answer at once.
  void Abort();

  // Until the card has passed LaunchEndWindow: what its kernels wrote to host memory before is
  // there. CardError() then; DeadlineExceeded when it has not at `deadline_ns` of the clock.
  absl::Status AwaitEnd(int64_t deadline_ns);

  // OK, or DeadlineExceeded naming the layer and stage at which the card first waited in vain in
  // this window. After the window's work has ended on the card.
  absl::Status CardError() const;

  // Stamps of a layer in a window that is at most kStampWindows old, 0: not passed. After the
  // window's work has ended on the card.
  std::array<uint64_t, kExchangeStamps> Stamps(uint32_t sequence, LayerId layer) const;
  uint64_t Stamp(uint32_t sequence, WindowStamp stamp) const;  // likewise

  const ExchangeLayout& layout() const { return layout_; }

 private:
  std::span<uint64_t> Words(uint64_t offset_bytes, size_t count) const;
  absl::Status AwaitWords(std::span<uint64_t> words, int64_t deadline_ns);
  absl::Status AwaitLayer(LayerId layer, uint64_t offset_bytes, size_t count, const char* what,
                          int64_t deadline_ns);
  uint32_t ChangeTable();
  absl::Status PostList(LayerId layer, std::span<uint64_t> words, const ExpertList& list,
                        uint32_t flags, const char* what);

  const ExchangeLayout layout_;
  const std::span<std::byte> memory_;
  Clock& clock_;
  uint32_t sequence_;
  std::vector<uint32_t> experts_;
  std::vector<float> weights_;
  size_t route_count_ = 0;
  std::vector<uint32_t> ahead_;
  // The card's table in the next window, and what changes: the first kTableChangesMax of it.
  std::vector<uint64_t> next_table_;
  std::vector<uint8_t> changed_;  // by index into the table
  std::vector<uint32_t> change_index_;
  uint32_t change_count_ = 0;
  StreamRule rule_;  // of the next window
  ClaimFinder finder_;
  std::span<const EntryClaim> claims_;  // of the last AwaitRoutes
};

}  // namespace hearth
