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

#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/ops/exchange/card_clock.h"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda/layer_launches.h"
#include "runtime/base/clock.h"
#include "runtime/base/window_trace.h"

namespace hearth {

// One window at a time: Begin, then for each of its layers AwaitRoutes, the calls of GpuListSink if
// the card computes experts, PostOutputs; then End. Between a Begin and its End, or after an error,
// Abort lets the card run to the end without waiting.
class RecordedWindows final : public GpuListSink {
 public:
  // Lengths of waits: `wait_ns_max` of the host for the card and of the card for the host.
  static absl::StatusOr<std::unique_ptr<RecordedWindows>> Create(GpuId gpu,
                                                                 const ModelGeometry& geometry,
                                                                 uint32_t rows_max,
                                                                 int64_t wait_ns_max, Clock& clock);
  static absl::StatusOr<ExchangeLayout> Layout(const ModelGeometry& geometry, uint32_t rows_max);

  // Null: none. Forgets what was recorded.
  void set_recorder(GpuExpertRecorder* recorder);

  // Enqueues the window that `pass` describes, recording it if it is the first of its kind. The
  // window before has ended on the card. `embed` and `ngram_embed`: as in layer_launches.h.
  absl::Status Begin(const GpuPass& pass, const float* embed, const float* ngram_embed);
  bool under_way() const { return under_way_; }

  // What the card does in windows from now on; null: nothing. Measures the card's clock, for which
  // `stream` is waited for. The windows before have ended on the card; outlives those after.
  absl::Status set_trace(WindowTrace* trace, CudaStreamView stream);

  absl::StatusOr<Routes> AwaitRoutes(LayerId layer);
  ExpertInput input() const { return input_; }  // of that layer
  std::span<float> output(LayerId layer) const { return exchange_->host().output(layer); }
  // The host has computed what is not in a list.
  absl::Status PostOutputs(LayerId layer);
  void Abort();
  // After the window's work has ended on the card: the first error of the card's own waits.
  absl::Status End();

  absl::Status PostHits(LayerId layer, const ExpertList& list,
                        const ExchangeFollows& follows) override;
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

  static constexpr uint32_t kKinds = 4;  // trunk or draft, with or without a choice of blocks

  const ModelGeometry& geometry_;
  std::unique_ptr<WindowExchange> exchange_;
  int64_t wait_ns_max_;
  Clock& clock_;
  UniqueEvent passed_;  // the window's last launch
  GpuExpertRecorder* recorder_ = nullptr;
  std::array<std::array<std::optional<UniqueGraph>, kExchangeRowsMax + 1>, kKinds> graphs_;

  WindowTrace* trace_ = nullptr;
  CardClock card_clock_;
  bool to_be_traced_ = false;  // the last window that was begun
  bool was_draft_ = false;     // likewise

  // The window at hand.
  bool under_way_ = false;
  uint32_t rows_ = 0;
  ExpertInput input_;
  bool hits_posted_ = false;     // of the layer at hand
  bool outputs_follow_ = false;  // likewise
};

}  // namespace hearth
