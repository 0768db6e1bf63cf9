// A thread that plays a card: computes experts out of slots in host memory, beside the pool and in
// its own time, with outputs of its own. It makes nothing faster; it proves the rules of a card on
// machines without one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/base/worker_team.h"
#include "runtime/experts/expert_card.h"
#include "runtime/experts/slot_device.h"

namespace hearth {

struct HostCardOptions {
  uint32_t rows_max = 0;  // of one pass
  uint32_t ranks = 0;
  bool streams = false;                       // experts of host memory, in place of uploads
  bool takes_late = true;                     // in windows in which it follows the routes
  int64_t wait_ns = 10'000'000'000;           // for a layer to be passed
  std::function<void(LayerId)> before_layer;  // on the card's thread: tests delay layers with it
};

class HostCard final : public ExpertCard {
 public:
  struct Deps {                             // all outlive the card
    std::span<const ExpertLayout> layouts;  // of each layer's experts; copied
    uint32_t expert_count = 0;              // per layer
    const CpuKernels& kernels;
    const SlotDevice& device;  // whose slots the host reads
    Clock& clock;
  };
  static absl::StatusOr<std::unique_ptr<HostCard>> Create(const Deps& deps,
                                                          const HostCardOptions& options);
  ~HostCard() override;

  std::string_view name() const override { return "a thread in place of a card"; }
  bool Computes(LayerId layer, const ExpertRows& rows) const override;
  absl::Status Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& rows,
                     std::span<const CardExpert> experts) override;
  bool FollowsRoutes() const override { return follows_; }
  std::span<const EntryClaim> Claims(LayerId layer, std::span<const uint32_t> expert) override;
  bool TakesLate() const override { return options_.takes_late; }
  void SetSlot(ExpertKey key, SlotRef slot) override;
  void SetHostBytes(ExpertKey key, std::span<const std::byte> bytes) override;
  void SetStreamRule(const StreamRule& rule) override { rule_ = rule; }
  bool Streams(std::span<const std::byte>) const override { return options_.streams; }
  absl::Status Stream(std::span<const StreamedExpert> experts) override;
  void Arrive(const CardExpert& expert) override;
  absl::Status Finish() override;
  absl::StatusOr<CardTimes> Retire() override;

  // The next pass is a window in which it follows the routes, by the table as it is now; or the
  // next is not.
  void BeginWindow();
  void EndWindow() { follows_ = false; }
  // What the table of the window says of an expert.
  uint64_t entry(ExpertKey key) const { return table_[IndexOf(key)]; }

  // Of the last layer that was begun, good once AwaitIdle() has returned: (rows, ranks, hidden),
  // of which on_card() (rows, ranks) marks those that were written with 1.
  std::span<float> output() { return output_; }
  std::span<const uint8_t> on_card() const { return on_card_; }
  // Whether it has come to an end with what it was given, within the bound.
  bool AwaitIdle();

 private:
  HostCard(const Deps& deps, const HostCardOptions& options);
  ExpertRows CopyRows(const ExpertRows& rows);
  void MarkEntries(const PlannedExpert& planned);
  void Deliver(uint32_t index, const std::byte* blob);
  size_t IndexOf(ExpertKey key) const {
    return size_t{key.layer.value} * deps_.expert_count + key.expert.value;
  }
  void TakeClaimed();
  void CardMain();

  const Deps deps_;
  const HostCardOptions options_;
  uint32_t hidden_ = 0;
  WorkerTeam team_{1};
  std::unique_ptr<ExpertPool> pool_;
  std::vector<float> output_;
  std::vector<uint8_t> on_card_;

  // By layer and expert: of the window, of the next, and of that outside of slots.
  std::vector<uint64_t> table_, next_table_, host_entries_;
  StreamRule rule_;  // of the next window
  ClaimFinder finder_;
  bool follows_ = false;
  std::span<const EntryClaim> claims_;  // of the layer at hand

  // Of the layer at hand; the thread reads them from Begin() to the end of its work.
  LayerId layer_;
  WindowPlan plan_;
  std::vector<ExpertWeights> weights_;
  std::vector<uint8_t> arrived_;  // by index into the plan's experts
  uint32_t streamed_count_ = 0;
  std::vector<float> x_;
  std::vector<int8_t> q_;
  std::vector<float> scale_;
  std::vector<int32_t> sum16_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_work_ = false;  // from Begin() until the thread is done
  bool stopping_ = false;
  int64_t layer_ns_ = 0;
  std::thread thread_;
};

}  // namespace hearth
