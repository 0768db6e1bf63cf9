// Windows as graphs: the launches of all layers are recorded once for each number of rows and
// started by one call. In between the card waits for words of the host where the host's experts
// come in, and the host for the card's routes (gpu_kernels/ops/exchange).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/exchange/card_clock.h"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda/layer_launches.h"
#include "runtime/base/clock.h"
#include "runtime/base/window_trace.h"

namespace hearth {

// One window at a time: Begin, then for each of its layers AwaitRoutes, AwaitRows before the host
// looks at them, the calls of GpuListSink if the card computes experts, PostOutputs; then End.
// Between a Begin and its End, or after an error, Abort lets the card run to the end without
// waiting.
class RecordedWindows final : public GpuListSink, public GpuExpertTable, public RowsArrival {
 public:
  // Lengths of waits: `wait_ns_max` of the host for the card and of the card for the host.
  static absl::StatusOr<std::unique_ptr<RecordedWindows>> Create(GpuId gpu,
                                                                 const ModelGeometry& geometry,
                                                                 const ExchangeForms& forms,
                                                                 uint32_t rows_max,
                                                                 int64_t wait_ns_max, Clock& clock);
  static absl::StatusOr<ExchangeLayout> Layout(const ModelGeometry& geometry,
                                               const ExchangeForms& forms, uint32_t rows_max);

  // Null: none. Each forgets what was recorded.
  void set_recorder(GpuExpertRecorder* recorder);
  void set_route_source(RouteSource* source);

  // Enqueues the window that `pass` describes, recording it if it is the first of its kind. The
  // window before has ended on the card. `embed` and `ngram_embed`: as in layer_launches.h.
  absl::Status Begin(const GpuPass& pass, const float* embed, const float* ngram_embed);
  bool under_way() const { return under_way_; }

  // What the card does in windows from now on; null: nothing. Measures the card's clock, for which
  // `stream` is waited for. The windows before have ended on the card; outlives those after.
  absl::Status set_trace(WindowTrace* trace, CudaStreamView stream);

  absl::StatusOr<Routes> AwaitRoutes(LayerId layer);
  ExpertInput input() const { return input_; }  // of that layer
  // Of the layer at hand; the card publishes them only if it does not take all entries by itself.
  absl::Status AwaitRows() override;
  std::span<float> output(LayerId layer) const { return exchange_->host().output(layer); }
  // The host has computed what is not in a list.
  absl::Status PostOutputs(LayerId layer);
  void Abort();
  // After the window's work has ended on the card: the first error of the card's own waits.
  absl::Status End();

  void SetEntry(LayerId layer, ExpertId expert, uint64_t entry) override {
    exchange_->host().SetEntry(layer, expert, entry);
  }
  void SetStreamRule(const StreamRule& rule) override { exchange_->host().SetStreamRule(rule); }
  std::span<const EntryClaim> claims() const override { return exchange_->host().claims(); }
  absl::Status PostLate(LayerId layer, const ExpertList& list) override;
  absl::Status AwaitPassed(LayerId layer) override;
  uint32_t window() const override { return exchange_->host().sequence(); }
  GpuListTimes Times(uint32_t window, LayerId layer) const override;

  uint64_t host_bytes() const { return exchange_->host_bytes(); }
  uint64_t device_bytes() const { return exchange_->device_bytes(); }

 private:
  RecordedWindows(const ModelGeometry& geometry, std::unique_ptr<WindowExchange> exchange,
                  int64_t wait_ns_max, Clock& clock, UniqueEvent passed)
      : geometry_(geometry),
        exchange_(std::move(exchange)),
        wait_ns_max_(wait_ns_max),
        clock_(clock),
        passed_(std::move(passed)) {}
  absl::Status Record(const GpuPass& pass, const float* embed, const float* ngram_embed);
  void TraceEnded();
  absl::Status RecordLayer(const GpuPass& pass, uint32_t layer, const float* ngram_embed);
  uint32_t* Replayed(std::byte* first, uint32_t layer) const;  // of the layer
  absl::Status SendReplayed(const GpuPass& pass);

  void ForgetGraphs();
  bool TakesLate() const { return recorder_ != nullptr && recorder_->TakesLate(); }

  static constexpr uint32_t kKinds = 4;  // trunk or draft, with or without a choice of blocks

  const ModelGeometry& geometry_;
  std::unique_ptr<WindowExchange> exchange_;
  int64_t wait_ns_max_;
  Clock& clock_;
  UniqueEvent passed_;  // the window's last launch
  GpuExpertRecorder* recorder_ = nullptr;
  // Replayed routes, (layers, rows max * ranks), on the host and on the card; none without a
  // source.
  RouteSource* source_ = nullptr;
  std::optional<PinnedBuffer> replayed_;
  std::optional<DeviceBuffer> replayed_on_card_;
  std::array<std::array<std::optional<UniqueGraph>, kExchangeRowsMax + 1>, kKinds> graphs_;

  WindowTrace* trace_ = nullptr;
  CardClock card_clock_;
  bool to_be_traced_ = false;  // the last window that was begun
  bool was_draft_ = false;     // likewise

  // The window at hand.
  bool under_way_ = false;
  uint32_t rows_ = 0;
  ExpertInput input_;
  LayerId layer_;             // last whose routes came; not valid: none yet
  bool late_posted_ = false;  // of that layer
};

}  // namespace hearth
