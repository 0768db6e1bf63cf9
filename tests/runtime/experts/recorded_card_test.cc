// Experts of a card in windows that are graphs: recorded kernels compute what the card finds in its
// table by itself, in slots and over the link, and the late lists that layers post, with the pool's
// bits, between passes that are launched layer by layer.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
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
class RecordedRig final : public CudaRig, public GpuListSink, public GpuExpertTable {
 public:
  RecordedRig(const GpuInfo& gpu, const CudaRigOptions& options)
      : CudaRig(gpu, options), gpu_(gpu.id), model_(options.model) {}
  uint32_t window_count() const { return window_count_; }
  uint32_t late_count() const { return late_count_; }  // that were not empty

  void SetEntry(LayerId layer, ExpertId expert, uint64_t entry) override {
    exchange_->host().SetEntry(layer, expert, entry);
  }
  void SetStreamRule(const StreamRule& rule) override { exchange_->host().SetStreamRule(rule); }
  std::span<const EntryClaim> claims() const override { return exchange_->host().claims(); }
  absl::Status PostLate(LayerId layer, const ExpertList& list) override {
    late_posted_ = true;
    if (!list.items.empty()) ++late_count_;
    for (const ExpertFfnEntry& entry : list.entries) on_card()[entry.y_row] = 1;
    return exchange_->host().PostLate(layer, list);
  }
  absl::Status AwaitPassed(LayerId) override { return absl::OkStatus(); }
  uint32_t window() const override { return exchange_->host().sequence(); }
  GpuListTimes Times(uint32_t window, LayerId layer) const override {
    return ListTimes(exchange_->host(), window, layer);
  }

 private:
  absl::Status MakeTable() override {
    const ExchangeShape shape = {.layer_count = static_cast<uint32_t>(model_.formats.size()),
                                 .rows_max = kWindowRows,
                                 .ranks = model_.ranks,
                                 .hidden = model_.hidden,
                                 .expert_count = model_.expert_count};
    HEARTH_ASSIGN_OR_RETURN(exchange_, WindowExchange::Create(gpu_, shape, 2'000'000'000, clock()));
    HEARTH_ASSIGN_OR_RETURN(routes_, PinnedBuffer::Create(gpu_, 2 * WeightsAt()));
    io().table = this;
    return absl::OkStatus();
  }
  uint64_t WeightsAt() const { return uint64_t{kWindowRows} * model_.ranks * sizeof(uint32_t); }

  absl::Status Record(LayerId layer, uint32_t rows, CudaStreamView stream) {
    const std::byte* const routes = routes_->device_data();
    HEARTH_RETURN_IF_ERROR(LaunchBeginWindow(*exchange_, stream));
    HEARTH_RETURN_IF_ERROR(
        LaunchPublishRoutes(*exchange_, layer, reinterpret_cast<const uint32_t*>(routes),
                            reinterpret_cast<const float*>(routes + WeightsAt()), rows, stream));
    HEARTH_RETURN_IF_ERROR(card().RecordExperts(layer, rows, exchange_->hits()));
    if (card().TakesLate()) {
      HEARTH_RETURN_IF_ERROR(LaunchTakeLate(*exchange_, layer, rows, stream));
      HEARTH_RETURN_IF_ERROR(card().RecordExperts(layer, rows, exchange_->late()));
    }
    return LaunchAwaitOutputs(*exchange_, layer, stream);
  }
  absl::Status BeginPass(LayerId layer, const RandomRows& rows) override {
    io().lists = rows.rows <= kWindowRows ? this : nullptr;
    if (io().lists == nullptr) return absl::OkStatus();
    auto at = graphs_.find({layer.value, rows.rows});
    if (at == graphs_.end()) {
      HEARTH_ASSIGN_OR_RETURN(UniqueGraph graph,
                              UniqueGraph::Capture(io().stream, [&](CudaStreamView stream) {
                                return Record(layer, rows.rows, stream);
                              }));
      at = graphs_.emplace(std::pair(layer.value, rows.rows), std::move(graph)).first;
    }
    ++window_count_;
    late_posted_ = false;
    std::memcpy(routes_->data().data(), rows.routes.data(), rows.routes.size() * sizeof(uint32_t));
    (void)exchange_->host().BeginWindow();
    HEARTH_RETURN_IF_ERROR(at->second.Launch(io().stream));
    HEARTH_RETURN_IF_ERROR(
        exchange_->host().AwaitRoutes(layer, rows.rows, clock().NowNs() + 2'000'000'000).status());
    for (size_t i = 0; i < claims().size(); ++i) {
      if (claims()[i] != EntryClaim::kHost) on_card()[i] = 1;
    }
    return absl::OkStatus();
  }
  void EndPass(LayerId layer) override {
    if (io().lists == nullptr || exchange_->host().all_claimed()) return;
    const absl::Status posted =
        card().TakesLate() && !late_posted_ ? PostLate(layer, {}) : absl::OkStatus();
    EXPECT_TRUE(posted.ok()) << posted;
    exchange_->host().PostOutputs(layer);
  }
  absl::Status CheckPass() override {
    return io().lists == nullptr ? absl::OkStatus() : exchange_->host().CardError();
  }

  const GpuId gpu_;
  const RandomModel model_;
  std::unique_ptr<WindowExchange> exchange_;
  std::optional<PinnedBuffer> routes_;  // experts, then weights
  std::map<std::pair<uint32_t, uint32_t>, UniqueGraph> graphs_;
  bool late_posted_ = false;
  uint32_t window_count_ = 0;
  uint32_t late_count_ = 0;
};

class RecordedCardOnGpu : public OnGpu {
 protected:
  void RunAll(const CudaRigOptions& options) {
    const bool in_place = options.model.keeps_in_place;
    RecordedRig rig(gpu(), options);
    const absl::Status made = rig.Make();
    ASSERT_TRUE(made.ok()) << made;
    for (uint32_t p = 0; p < 14; ++p) {
      const bool prompt = p % 7 == 0;
      const uint32_t rows = prompt ? 40 : p % 5 + 1;
      for (uint32_t l = 0; l < options.model.formats.size(); ++l) {
        rig.RunChecked(LayerId(l), rows, p * 31 + l,
                       prompt ? TrafficKind::kPrompt : TrafficKind::kWindow);
        if (HasFatalFailure()) return;
      }
      rig.tiers().EndWindow(rows);
    }
    EXPECT_EQ(rig.window_count(), 24u);
    EXPECT_GT(rig.distinct(Service::kVram), 0u);
    EXPECT_GT(rig.ns(Service::kVram), 0) << "by the card's clock";
    const bool streams = options.pcie_share > 0;
    EXPECT_EQ(rig.distinct(Service::kPcie) > 0, streams);
    EXPECT_TRUE(rig.late_count() == 0 || (streams && !in_place));
    EXPECT_TRUE(rig.late_count() > 0 || !streams || in_place || options.budget.share == 1);
    const bool is_measured = rig.tiers().card_table()->costs().link_expert_ns > 0;
    EXPECT_TRUE(is_measured || !streams || !in_place || options.budget.share == 1);
    EXPECT_FALSE(is_measured && !(streams && in_place));
  }
};

TEST_F(RecordedCardOnGpu, OutputsAreThePoolsForAllPlacements) {
  for (const bool in_place : {false, true}) {
    const RandomModel model{.formats = {ExpertFormat::kNvfp4, ExpertFormat::kXt},
                            .keeps_in_place = in_place};
    for (const double share : {0.0, 0.6, 1.0}) {
      for (const SlotBudget& budget : {SlotBudget{.slot_count = 14}, SlotBudget{.share = 1}}) {
        SCOPED_TRACE(testing::Message() << in_place << " " << share << " " << budget.share);
        RunAll({.model = model, .budget = budget, .pcie_share = share});
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace hearth
