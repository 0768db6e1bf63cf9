// Where a card's routed experts read their rows and leave their outputs: what the backend of the
// dense path hands to whoever computes experts out of VRAM slots.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/xt.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/card_claims.h"
#include "runtime/base/ids.h"

namespace hearth {

struct CardList;    // gpu_kernels/ops/exchange/window_exchange.h
struct ExpertList;  // gpu_kernels/ops/exchange/exchange_host.h

// How long a card computed the lists of a layer, by its own clock, nanoseconds; 0: not known, or
// there was nothing to compute.
struct GpuListTimes {
  int64_t hits_ns = 0;
  int64_t late_ns = 0;
  // When it began with each, on the host's clock; 0: not known, as without a trace.
  int64_t hits_begin_ns = 0;
  int64_t late_begin_ns = 0;
};

// The card's table of experts in windows whose launches were all enqueued beforehand
// (gpu_kernels/ops/card_claims.h). What is set holds from the next such window on; until the card
// has passed a layer of a window, the memory that the window's entries name stays as it is.
class GpuExpertTable {
 public:
  virtual ~GpuExpertTable() = default;
  virtual void SetEntry(LayerId layer, ExpertId expert, uint64_t entry) = 0;
  virtual void SetStreamRule(const StreamRule& rule) = 0;
};

// A window whose launches were all enqueued beforehand, for whoever computes experts: kernels that
// were recorded (GpuExpertRecorder) compute what the card takes by itself, and wait for a list of
// what else they are to compute. For the layer at hand, between FirstHalf and SecondHalf, from one
// thread: PostLate at most once, if the recorder takes such lists.
class GpuListSink {
 public:
  virtual ~GpuListSink() = default;
  // Of the layer at hand, (rows, ranks).
  virtual std::span<const EntryClaim> claims() const = 0;
  virtual absl::Status PostLate(LayerId layer, const ExpertList& list) = 0;
  // Returns when the card has passed the layer, or with the error of why it will not, in a bounded
  // time.
  virtual absl::Status AwaitPassed(LayerId layer) = 0;
  // The window at hand, and what is known of a layer of that one or the one before, once the card
  // has passed it.
  virtual uint32_t window() const { return 0; }
  virtual GpuListTimes Times(uint32_t /*window*/, LayerId) const { return {}; }
};

// Rows that are still on their way when their place is told.
class RowsArrival {
 public:
  virtual ~RowsArrival() = default;
  // Until they are there, or the error of why they will not be, in a bounded time. Only where some
  // entry of the layer is not claimed by the card, and before SecondHalf.
  virtual absl::Status AwaitRows() = 0;
};

// Records what computes experts into a window's graph.
class GpuExpertRecorder {
 public:
  virtual ~GpuExpertRecorder() = default;
  // Whether the host may tell it of experts that the card does not take by itself.
  virtual bool TakesLate() const = 0;
  // Enqueues on the io's stream what computes `list`, whose contents and length are read on the
  // card, for windows of `rows` rows. For each layer once, or twice if it takes late ones.
  virtual absl::Status RecordExperts(LayerId layer, uint32_t rows, const CardList& list) = 0;
};

// What expert kernels on the backend's card read and write for the layer at hand: work enqueued on
// `stream` between FirstHalf and SecondHalf finds u there and is done when the layer is combined.
// Device addresses, the same for every pass; the bits of u are those of ExpertInput.
struct GpuExpertIo {
  CudaStreamView stream;
  QuantizedRows u;          // (rows max, hidden)
  XtRows u_rotated;         // q == nullptr when no layer's experts are in XT
  float* output = nullptr;  // (rows max * ranks, hidden): entry row * ranks + rank, unweighted
  // Host memory, a byte for each entry, zeroed by FirstHalf: 1 when the card writes the entry, so
  // that SecondHalf takes it from `output` and not from what it is handed. The caller sets them.
  std::span<uint8_t> on_card;
  // Not null while the pass at hand is a recorded window: then nothing is enqueued on `stream`, and
  // on_card follows from claims and lists. Changes with the pass.
  GpuListSink* lists = nullptr;
  GpuExpertTable* table = nullptr;  // null where no windows are recorded
};

}  // namespace hearth
