// The experts of a generated model, all in RAM, and the slot cache that fits them: for tests of
// what moves experts about.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "cache/slots/slot_cache.h"
#include "cache/store/whole_arena.h"
#include "pack/reader/pack.h"
#include "runtime/base/check.h"
#include "runtime/base/worker_team.h"
#include "tests/support/runner_fixture.h"
#include "tests/support/tiny_checkpoint.h"

namespace hearth {

class TinyArena {
 public:
  explicit TinyArena(const TinyOptions& options) : team_(1) {
    FixtureDir dir;
    TinyCheckpoint(options).Write(dir.path());
    const TemporaryPack pack(dir.path(), DenseChoice::kBf16);
    absl::StatusOr<Pack> opened = Pack::Open(pack.dir());
    HEARTH_CHECK(opened.ok());
    auto arena = WholeArena::Load(opened->experts, team_, nullptr);
    HEARTH_CHECK(arena.ok());
    store_ = *std::move(arena);
  }
  WholeArena& store() { return *store_; }

  std::unique_ptr<SlotCache> MakeSlots(const SlotBudget& budget, uint32_t spare_count,
                                       const std::string& policy = "two-scale") const {
    SlotCacheOptions options{.expert_count = store_->expert_count(),
                             .budget = budget,
                             .policy = policy,
                             .spare_count = spare_count};
    for (uint32_t l = 0; l < store_->layer_count(); ++l) {
      options.blob_bytes.push_back(store_->layout(LayerId(l)).stride_bytes());
    }
    auto slots = SlotCache::Create(options);
    EXPECT_TRUE(slots.ok()) << slots.status();
    HEARTH_CHECK(slots.ok());
    return *std::move(slots);
  }

 private:
  WorkerTeam team_;
  std::unique_ptr<WholeArena> store_;
};

}  // namespace hearth
