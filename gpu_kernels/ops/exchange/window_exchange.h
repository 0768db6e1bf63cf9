// Host and card meet within a window whose launches are all enqueued beforehand, as a graph: the
// card's side of the exchange and the owner of its memory. exchange_layout.h tells the life of a
// layer, exchange_host.h is the host's side.
//
// Waits on the card are blocks of threads that look at host memory over the link. Each is bounded:
// when its time is up it writes the error word (layer, stage), leaves an empty list and marks the
// window as failed, whereupon later waits of the window end at once; the window's work always ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/xt.h"
#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/exchange/exchange_host.h"
#include "gpu_kernels/ops/exchange/exchange_layout.h"
#include "gpu_kernels/ops/exchange/output_wait.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace hearth {

struct CardState;
struct ListCounts;

// A list in the card's memory, as expert kernels read it. Device addresses that never change; the
// contents are those of the layer at hand.
struct CardList {
  ExpertFfnItem* items = nullptr;     // (rows_max * ranks)
  ExpertFfnEntry* entries = nullptr;  // (rows_max * ranks)
  uint32_t* item_count = nullptr;
  uint32_t* entry_count = nullptr;
};

class WindowExchange {
 public:
  // `wait_ns_max`: of one wait on the card. `clock` outlives the exchange.
  static absl::StatusOr<std::unique_ptr<WindowExchange>> Create(GpuId gpu,
                                                                const ExchangeShape& shape,
                                                                uint64_t wait_ns_max, Clock& clock);

  ExchangeHost& host() { return host_; }
  GpuId gpu() const { return card_.gpu(); }
  const ExchangeLayout& layout() const { return host_.layout(); }
  uint64_t wait_ns_max() const { return wait_ns_max_; }

  // Device addresses. Hits and late lists of the layer at hand:
  CardList hits() const;
  CardList late() const;
  // (rows_max * ranks) bytes, by entry row * ranks + rank: 1 when a list of the layer holds it, so
  // that its output is in the card's memory; 0: it comes from host_output(). Complete after
  // LaunchTakeLate or, in a window without late lists, after the hits.
  uint8_t* on_card() const;
  // (rows_max * ranks, hidden) in host memory, as kernels address it: for the combine, after
  // LaunchAwaitOutputs.
  const float* host_output(LayerId layer) const;
  // For a kernel that waits for it by itself (output_wait.cuh), in place of LaunchAwaitOutputs.
  OutputWait output_wait(LayerId layer) const;

  // For the launches below: the exchange's memory as kernels address it over the link, and its
  // state on the card.
  std::byte* mapped() const { return mapped_.device_data(); }
  CardState* state() const;
  uint64_t* table() const;  // (layer_count, expert_count) on the card

  uint64_t host_bytes() const { return mapped_.bytes(); }
  uint64_t device_bytes() const { return card_.bytes(); }

 private:
  WindowExchange(const ExchangeLayout& layout, PinnedBuffer mapped, DeviceBuffer card,
                 uint64_t wait_ns_max, Clock& clock);
  CardList ListAt(uint64_t items_offset_bytes, uint64_t entries_offset_bytes,
                  ListCounts* counts) const;
  PinnedBuffer mapped_;
  DeviceBuffer card_;
  ExchangeHost host_;
  uint64_t wait_ns_max_;
};

// Device addresses of what a layer's router and experts' input left; forms that the exchange's
// shape does not ask for are not read.
struct PublishArgs {
  // With logits: makes the router's choice in the same launch, for as many rows; what is published
  // is then there before.
  GpuRouterArgs router;
  // With x: computed beside, in the same launch; nothing that is published. LaunchPublish only.
  GpuActivateQuantizeArgs activation;
  const uint32_t* expert = nullptr;  // (rows, ranks)
  const float* weight = nullptr;     // (rows, ranks)
  QuantizedRows u;                   // (rows, hidden)
  XtRows u_rotated;                  // (rows, hidden)
  const float* x = nullptr;          // (rows, hidden) fp32
  uint32_t rows = 0;                 // at most rows_max
};

// Each enqueues one kernel on `stream` and returns; all can be recorded into a graph, and address
// only what `exchange` owns and the args name. Once at the front of a window: learns its number and
// what changes in the table.
absl::Status LaunchBeginWindow(const WindowExchange& exchange, CudaStreamView stream);

// Routes to the host, `expert` and `weight` (rows, ranks). With expert_count != 0 also finds what
// the card takes by itself (card_claims.h): hits() is complete then, an item for each such expert
// and kExpertRowsMax of its rows, and every other entry is awaited from the host.
absl::Status LaunchPublishRoutes(const WindowExchange& exchange, LayerId layer,
                                 const uint32_t* expert, const float* weight, uint32_t rows,
                                 CudaStreamView stream);
// Rows to the host. Ends when they have arrived, which takes several microseconds while uploads
// keep the link busy: best on a stream of its own, beside the experts, that is joined before the
// next wait of the layer. (Before it, because nothing promises that a graph's branches run at the
// same time: what the host needs in order to answer a wait must be recorded before the wait.)
absl::Status LaunchPublishRows(const WindowExchange& exchange, LayerId layer,
                               const PublishArgs& args, CudaStreamView stream);
// Both in one kernel. With expert_count != 0 it does not wait for the rows to arrive where the card
// takes all entries by itself, and says nothing of them.
absl::Status LaunchPublish(const WindowExchange& exchange, LayerId layer, const PublishArgs& args,
                           CudaStreamView stream);
// Experts that `layer` may choose, (rows, ranks), to the host: a hint for its reads.
absl::Status LaunchPublishAhead(const WindowExchange& exchange, LayerId layer,
                                const uint32_t* expert, uint32_t rows, CudaStreamView stream);
// Waits for the list and puts it into the card's memory. `rows`: of the window. Only where the host
// finds the hits.
absl::Status LaunchTakeHits(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                            CudaStreamView stream);
// The same for the second list; an empty one, without a look at the host, when none follows.
absl::Status LaunchTakeLate(const WindowExchange& exchange, LayerId layer, uint32_t rows,
                            CudaStreamView stream);
// Waits until host_output(layer) holds what the CPU computes; at once when it computes nothing.
absl::Status LaunchAwaitOutputs(const WindowExchange& exchange, LayerId layer,
                                CudaStreamView stream);

// Once at the end of a window: tells the host.
absl::Status LaunchEndWindow(const WindowExchange& exchange, CudaStreamView stream);

}  // namespace hearth
