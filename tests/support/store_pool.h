// A pool that takes all its weights from one store at once: layers without tiers, for tests and
// benchmarks of the computing alone.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/worker_team.h"
#include "runtime/experts/expert_pool.h"

namespace hearth {

class StorePool {
 public:
  static absl::StatusOr<std::unique_ptr<StorePool>> Create(ExpertStore& store,
                                                           const CpuKernels& kernels,
                                                           WorkerTeam& team,
                                                           const ExpertPool::Options& options) {
    std::unique_ptr<StorePool> p(new StorePool(store));
    std::vector<ExpertLayout> layouts;
    for (uint32_t l = 0; l < store.layer_count(); ++l) layouts.push_back(store.layout(LayerId(l)));
    auto pool = ExpertPool::Create({.layouts = layouts,
                                    .expert_count = store.expert_count(),
                                    .kernels = kernels,
                                    .team = team,
                                    .clock = p->clock_},
                                   options);
    if (!pool.ok()) return pool.status();
    p->pool_ = *std::move(pool);
    return p;
  }

  absl::Status Run(LayerId layer, const WindowPlan& plan, const ExpertRows& input,
                   std::span<float> output) {
    leases_.clear();
    weights_.clear();
    for (const PlannedExpert& planned : plan.experts) {
      const ExpertKey key{layer, planned.expert};
      absl::StatusOr<ExpertLease> lease = store_.Acquire(key);
      if (!lease.ok()) return lease.status();
      weights_.push_back({.blob = lease->bytes().data(), .node = store_.NodeOf(key)});
      leases_.push_back(*std::move(lease));
    }
    absl::Status status;
    if (pool_->DecodesFirst(layer, input)) {
      const auto stored = [&](size_t i) -> absl::StatusOr<const std::byte*> {
        return leases_[i].bytes().data();
      };
      status = pool_->Decode(
          layer, plan, stored, [](size_t) {}, weights_);
    }
    if (status.ok()) {
      pool_->Begin(layer, plan, input, weights_, output, nullptr);
      times_ = pool_->Finish();
    }
    leases_.clear();
    return status;
  }
  const LayerTimes& times() const { return times_; }  // of the last layer

 private:
  explicit StorePool(ExpertStore& store) : store_(store) {
    leases_.reserve(store.expert_count());
    weights_.reserve(store.expert_count());
  }
  ExpertStore& store_;
  SteadyClock clock_;
  std::unique_ptr<ExpertPool> pool_;
  std::vector<ExpertLease> leases_;
  std::vector<ExpertWeights> weights_;
  LayerTimes times_;
};

}  // namespace hearth
