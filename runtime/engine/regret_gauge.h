// A gauge of how far the slots are from the best they could have held: the hit rate of the last
// windows beside Belady's over the same windows. Recording costs a copy of the experts' ids; the
// oracle runs on a thread of its own, now and then.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cache/policy/regret.h"
#include "runtime/experts/expert_tiers.h"

namespace hearth {

class RegretGauge final : public TrafficObserver {
 public:
  // Watches windows of the first `layer_count` layers, those of the trunk. `pools` are those that
  // the slots are cut into.
  RegretGauge(uint32_t layer_count, uint32_t expert_count, std::vector<PoolShape> pools);
  ~RegretGauge() override;

  void OnLayerServed(LayerId layer, const WindowPlan& plan, TrafficKind kind) override;
  void OnWindowEnd(uint32_t token_count) override;

  // The last judgement; from any thread.
  Regret latest() const;
  // Judges what is in the ring now, on the calling thread.
  Regret Measure() const;

 private:
  static constexpr uint64_t kWindowsBetween = 256;

  void JudgeMain();

  const uint32_t layer_count_;
  const std::vector<PoolShape> pools_;
  std::vector<ExpertId> experts_;
  std::vector<uint8_t> hits_;
  bool window_open_ = false;

  mutable std::mutex mutex_;  // guards what follows
  RegretRing ring_;
  Regret latest_;
  uint64_t windows_since_ = 0;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::thread judge_;
};

}  // namespace hearth
