// What a layer of a window costs the host when a card follows the routes and takes everything: from
// the routes to the end of RunLayer(), which outputs of the CPU would wait for, and the bookkeeping
// behind it, which nobody waits for. A model of full size without its bytes. Prints microseconds.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "cache/policy/synthetic_trace.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/experts/expert_tiers.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 48;
constexpr uint32_t kExperts = 512;
constexpr uint32_t kRanks = 10;
constexpr uint32_t kRowsMax = 8;
constexpr uint32_t kTraceLayers = 8;
const ExpertLayout kLayout{.format = ExpertFormat::kNvfp4, .hidden = 2560, .width = 640};

class OneBlobStore final : public ExpertStore {
 public:
  uint32_t layer_count() const override { return kLayers; }
  uint32_t expert_count() const override { return kExperts; }
  const ExpertLayout& layout(LayerId) const override { return kLayout; }
  bool keeps_in_place() const override { return true; }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey) override { return MakeLease(0, blob_.data()); }

 private:
  void Release(uint64_t) override {}
  AnonymousMapping blob_{*AnonymousMapping::Create(kLayout.stride_bytes())};
};

class NoSlots final : public SlotDevice {
 public:
  std::string_view name() const override { return "none"; }
  bool computes() const override { return true; }
  void Upload(SlotRef, std::span<const std::byte>, UploadSink& sink, uint32_t index) override {
    sink.OnUploaded(index, absl::OkStatus());
  }
  absl::StatusOr<std::span<const std::byte>> Read(SlotRef, uint64_t) override {
    return absl::UnimplementedError("no bytes");
  }
  std::span<const std::byte> HostView(SlotRef) const override { return {}; }
  uint64_t bytes() const override { return 0; }
};

// Claims what is in slots and streams the rest; computes nothing.
class ClaimingCard final : public ExpertCard {
 public:
  ClaimingCard() : table_(size_t{kLayers} * kExperts), finder_(kExperts, kRowsMax * kRanks) {}
  void BeginWindow() { finder_.BeginWindow(rule_); }
  std::string_view name() const override { return "claims"; }
  bool Computes(LayerId, const ExpertRows&) const override { return true; }
  bool FollowsRoutes() const override { return true; }
  std::span<const EntryClaim> Claims(LayerId layer, std::span<const uint32_t> expert) override {
    return finder_.Find(std::span(table_).subspan(size_t{layer.value} * kExperts, kExperts),
                        expert);
  }
  bool TakesLate() const override { return false; }
  void SetSlot(ExpertKey key, SlotRef slot) override {
    table_[size_t{key.layer.value} * kExperts + key.expert.value] = slot.valid() ? 64 : kFromAfar;
  }
  void SetHostBytes(ExpertKey key, std::span<const std::byte>) override { SetSlot(key, SlotRef()); }
  void SetStreamRule(const StreamRule& rule) override { rule_ = rule; }
  absl::Status Begin(LayerId, const WindowPlan&, const ExpertRows&,
                     std::span<const CardExpert>) override {
    return absl::OkStatus();
  }
  bool Streams(std::span<const std::byte>) const override { return true; }
  absl::Status Stream(std::span<const StreamedExpert>) override { return absl::OkStatus(); }
  void Arrive(const CardExpert&) override {}
  absl::Status Finish() override { return absl::OkStatus(); }
  absl::StatusOr<CardTimes> Retire() override { return CardTimes{}; }

 private:
  std::vector<uint64_t> table_;
  StreamRule rule_;
  ClaimFinder finder_;
};

struct Times {
  std::vector<double> run_us, end_us, window_us;
};
double Median(std::vector<double>& us) {
  std::nth_element(us.begin(), us.begin() + static_cast<ptrdiff_t>(us.size() / 2), us.end());
  return us[us.size() / 2];
}

void Measure(const RouteTrace& trace, double slot_share, uint32_t rows) {
  SteadyClock clock;
  WorkerTeam team(1);
  OneBlobStore store;
  NoSlots device;
  ClaimingCard card;
  SlotCacheOptions options{.expert_count = kExperts, .budget = {.share = slot_share}};
  options.blob_bytes.assign(kLayers, kLayout.stride_bytes());
  const std::unique_ptr<SlotCache> slots = *SlotCache::Create(options);
  const std::vector<ExpertLayout> layouts(kLayers, kLayout);
  const auto pool = *ExpertPool::Create({.layouts = layouts,
                                         .expert_count = kExperts,
                                         .kernels = SelectCpuKernels(DetectCpuFeatures()),
                                         .team = team,
                                         .clock = clock},
                                        {.rows_max = kRowsMax, .ranks = kRanks});
  ExpertTiers tiers({.store = store,
                     .pool = *pool,
                     .clock = clock,
                     .slots = slots.get(),
                     .device = &device,
                     .card = &card},
                    {.rows_max = kRowsMax, .ranks = kRanks, .pcie_share = 1});
  const std::vector<int8_t> q(2560 * kRowsMax);
  std::vector<uint32_t> routes(size_t{rows} * kRanks);
  Times times;
  constexpr uint32_t kWindows = 400, kWarmUp = 200;
  for (uint32_t w = 0; w < kWindows; ++w) {
    card.BeginWindow();
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (uint32_t r = 0; r < rows; ++r) {
        const uint64_t token = (uint64_t{w} * rows + r + l / kTraceLayers * 777);
        std::ranges::copy(trace.of(token % trace.token_count(), l % kTraceLayers),
                          routes.begin() + static_cast<ptrdiff_t>(r * kRanks));
      }
      const int64_t begin_ns = clock.NowNs();
      const absl::Status ran = tiers.RunLayer(
          LayerId(l), {.expert = routes, .rows = rows, .ranks = kRanks, .expert_count = kExperts},
          {.quantized = {.q = q.data()}, .rows = rows}, TrafficKind::kWindow, {}, nullptr);
      const int64_t ran_ns = clock.NowNs();
      tiers.EndLayer();
      const int64_t ended_ns = clock.NowNs();
      HEARTH_CHECK(ran.ok());
      if (w < kWarmUp) continue;
      times.run_us.push_back(static_cast<double>(ran_ns - begin_ns) * 1e-3);
      times.end_us.push_back(static_cast<double>(ended_ns - ran_ns) * 1e-3);
    }
    const int64_t begin_ns = clock.NowNs();
    tiers.EndWindow(rows);
    if (w >= kWarmUp) {
      times.window_us.push_back(static_cast<double>(clock.NowNs() - begin_ns) * 1e-3);
    }
  }
  const LedgerCounts total = tiers.ledger().total();
  std::printf(
      "%3.0f%% slots, %u rows: layer %6.2f us, behind it %6.2f; window's end %7.1f; hits %.1f%%\n",
      slot_share * 100, rows, Median(times.run_us), Median(times.end_us), Median(times.window_us),
      100.0 * static_cast<double>(total.of(Service::kVram).distinct) /
          static_cast<double>(total.total().distinct));
}

int Run() {
  const RouteTrace trace = MakeSyntheticTrace(StickyRouting(), {.layer_count = kTraceLayers,
                                                                .expert_count = kExperts,
                                                                .ranks = kRanks,
                                                                .token_count = 8192});
  for (const double share : {0.4, 1.0}) {
    for (const uint32_t rows : {1u, 4u, 8u}) Measure(trace, share, rows);
  }
  return 0;
}

}  // namespace
}  // namespace hearth

int main() { return hearth::Run(); }
