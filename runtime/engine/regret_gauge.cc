#include "runtime/engine/regret_gauge.h"

#include <utility>

namespace hearth {

RegretGauge::RegretGauge(uint32_t layer_count, uint32_t expert_count, std::vector<PoolShape> pools)
    : layer_count_(layer_count),
      pools_(std::move(pools)),
      ring_({.layer_count = layer_count, .expert_count = expert_count}) {
  experts_.reserve(expert_count);
  hits_.reserve(expert_count);
  judge_ = std::thread([this] { JudgeMain(); });
}

RegretGauge::~RegretGauge() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  judge_.join();
}

void RegretGauge::OnLayerServed(LayerId layer, const WindowPlan& plan, TrafficKind kind) {
  if (kind != TrafficKind::kWindow || layer.value >= layer_count_) return;
  experts_.clear();
  hits_.clear();
  for (const PlannedExpert& planned : plan.experts) {
    experts_.push_back(planned.expert);
    hits_.push_back(planned.service == Service::kVram ? 1 : 0);
  }
  window_open_ = true;
  const std::lock_guard lock(mutex_);
  ring_.Add(layer, experts_, hits_);
}

void RegretGauge::OnWindowEnd(uint32_t) {
  if (!std::exchange(window_open_, false)) return;
  const std::lock_guard lock(mutex_);
  ring_.EndWindow();
  if (++windows_since_ == kWindowsBetween) wake_.notify_one();
}

Regret RegretGauge::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

Regret RegretGauge::Measure() const {
  RegretSample sample;
  {
    const std::lock_guard lock(mutex_);
    sample = ring_.Sample();
  }
  return MeasureRegret(sample, pools_);
}

void RegretGauge::JudgeMain() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || windows_since_ >= kWindowsBetween; });
    if (stopping_) return;
    windows_since_ = 0;
    const RegretSample sample = ring_.Sample();
    lock.unlock();
    const Regret regret = MeasureRegret(sample, pools_);
    lock.lock();
    latest_ = regret;
  }
}

}  // namespace hearth
