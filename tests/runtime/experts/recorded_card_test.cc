// Experts of a card in windows that are graphs: recorded kernels compute the lists that layers
// post, with the pool's bits, between passes that are launched layer by layer.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/ops/exchange/card_clock.h"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/runtime/experts/cuda_rig.h"

namespace hearth {
namespace {

constexpr uint32_t kWindowRows = 9;

// Each layer is a window of its own.
class RecordedRig final : public CudaRig, public GpuListSink {
 public:
  using CudaRig::CudaRig;
  absl::Status MakeExchange(const GpuInfo& gpu, const RandomModel& model) {
    HEARTH_RETURN_IF_ERROR(Make());
    HEARTH_ASSIGN_OR_RETURN(
        exchange_,
        WindowExchange::Create(gpu.id,
                               {.layer_count = static_cast<uint32_t>(model.formats.size()),
                                .rows_max = kWindowRows,
                                .ranks = model.ranks,
                                .hidden = model.hidden},
                               2'000'000'000, clock()));
    return absl::OkStatus();
  }
  uint32_t window_count() const { return window_count_; }
  uint32_t late_count() const { return late_count_; }

  absl::Status PostHits(LayerId layer, const ExpertList& list,
                        const ExchangeFollows& follows) override {
    outputs_follow_ = follows.outputs;
    MarkEntries(list);
    return exchange_->host().PostHits(layer, list, follows);
  }
  absl::Status PostLate(LayerId layer, const ExpertList& list) override {
    ++late_count_;
    MarkEntries(list);
    return exchange_->host().PostLate(layer, list);
  }
  absl::Status AwaitPassed(LayerId) override { return absl::OkStatus(); }
  uint32_t window() const override { return exchange_->host().sequence(); }
  GpuListTimes Times(uint32_t window, LayerId layer) const override {
    return ListTimes(exchange_->host(), window, layer);
  }

 private:
  absl::Status Record(LayerId layer, uint32_t rows, CudaStreamView stream) {
    HEARTH_RETURN_IF_ERROR(LaunchBeginWindow(*exchange_, stream));
    HEARTH_RETURN_IF_ERROR(LaunchTakeHits(*exchange_, layer, rows, stream));
    HEARTH_RETURN_IF_ERROR(card().RecordExperts(layer, rows, exchange_->hits()));
    HEARTH_RETURN_IF_ERROR(LaunchTakeLate(*exchange_, layer, rows, stream));
    HEARTH_RETURN_IF_ERROR(card().RecordExperts(layer, rows, exchange_->late()));
    return LaunchAwaitOutputs(*exchange_, layer, stream);
  }
  absl::Status BeginPass(LayerId layer, uint32_t rows) override {
    io().lists = rows <= kWindowRows ? this : nullptr;
    if (io().lists == nullptr) return absl::OkStatus();
    auto at = graphs_.find({layer.value, rows});
    if (at == graphs_.end()) {
      HEARTH_ASSIGN_OR_RETURN(UniqueGraph graph,
                              UniqueGraph::Capture(io().stream, [&](CudaStreamView stream) {
                                return Record(layer, rows, stream);
                              }));
      at = graphs_.emplace(std::pair(layer.value, rows), std::move(graph)).first;
    }
    ++window_count_;
    outputs_follow_ = false;
    (void)exchange_->host().BeginWindow();
    return at->second.Launch(io().stream);
  }
  void EndPass(LayerId layer) override {
    if (io().lists != nullptr && outputs_follow_) exchange_->host().PostOutputs(layer);
  }
  absl::Status CheckPass() override {
    return io().lists == nullptr ? absl::OkStatus() : exchange_->host().CardError();
  }
  void MarkEntries(const ExpertList& list) {
    for (const ExpertFfnEntry& entry : list.entries) on_card()[entry.y_row] = 1;
  }

  std::unique_ptr<WindowExchange> exchange_;
  std::map<std::pair<uint32_t, uint32_t>, UniqueGraph> graphs_;
  bool outputs_follow_ = false;
  uint32_t window_count_ = 0;
  uint32_t late_count_ = 0;
};

class RecordedCardOnGpu : public OnGpu {};

TEST_F(RecordedCardOnGpu, OutputsAreThePoolsForAllPlacements) {
  const RandomModel model{.formats = {ExpertFormat::kNvfp4, ExpertFormat::kXt}};
  for (const double share : {0.0, 0.6, 1.0}) {
    for (const SlotBudget& budget : {SlotBudget{.slot_count = 14}, SlotBudget{.share = 1}}) {
      SCOPED_TRACE(testing::Message() << share << " " << budget.share);
      RecordedRig rig(gpu(), {.model = model, .budget = budget, .pcie_share = share});
      const absl::Status made = rig.MakeExchange(gpu(), model);
      ASSERT_TRUE(made.ok()) << made;
      int64_t window_ns = 0;  // as the card's clock has it
      for (uint32_t p = 0; p < 14; ++p) {
        const int64_t before_ns = rig.ns(Service::kVram);
        const bool prompt = p % 7 == 0;
        const uint32_t rows = prompt ? 40 : p % 5 + 1;
        for (uint32_t l = 0; l < model.formats.size(); ++l) {
          rig.RunChecked(LayerId(l), rows, p * 31 + l,
                         prompt ? TrafficKind::kPrompt : TrafficKind::kWindow);
          if (HasFatalFailure()) return;
        }
        rig.tiers().EndWindow(rows);
        if (!prompt) window_ns += rig.ns(Service::kVram) - before_ns;
      }
      EXPECT_GT(window_ns, 0);
      EXPECT_EQ(rig.window_count(), 24u);
      EXPECT_GT(rig.distinct(Service::kVram), 0u);
      EXPECT_EQ(rig.late_count() > 0, share > 0 && budget.share == 0);
    }
  }
}

}  // namespace
}  // namespace hearth
