#include "tools/hearth/made_up_experts.h"

#include <algorithm>
#include <utility>

#include "pack/synth/synthetic_expert.h"
#include "runtime/base/status.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kSeed = 1;
// Experts that differ: more than a cache holds, so that reading is from memory, and few enough to
// be made in a moment.
constexpr uint32_t kDistinctCount = 64;

class MadeUpStore final : public ExpertStore {
 public:
  explicit MadeUpStore(const MadeUpExperts& experts) : experts_(experts) {}
  uint32_t layer_count() const override { return static_cast<uint32_t>(experts_.layouts().size()); }
  uint32_t expert_count() const override { return experts_.expert_count(); }
  const ExpertLayout& layout(LayerId layer) const override {
    return experts_.layouts()[layer.value];
  }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override {
    return MakeLease(0, experts_.Blob(key));
  }
  bool keeps_in_place() const override { return true; }
  std::vector<StoreMemory> memory() const override {
    return {{.bytes = experts_.memory(), .writable = true}};
  }
  StoreStats stats() const override {
    return {.capacity_bytes = experts_.bytes(),
            .resident_count = uint64_t{layer_count()} * expert_count()};
  }

 private:
  void Release(uint64_t) override {}
  const MadeUpExperts& experts_;
};

}  // namespace

uint64_t MadeUpExperts::OffsetOf(ExpertKey key) const {
  return layer_offsets_bytes_[key.layer.value] +
         key.expert.value * layouts_[key.layer.value].stride_bytes();
}

std::span<const std::byte> MadeUpExperts::Blob(ExpertKey key) const {
  return std::span(arena_.data()).subspan(OffsetOf(key), layouts_[key.layer.value].blob_bytes());
}

absl::StatusOr<std::unique_ptr<MadeUpExperts>> MadeUpExperts::Create(
    std::vector<ExpertLayout> layouts, uint32_t expert_count, WorkerTeam& team,
    const Progress& progress) {
  std::unique_ptr<MadeUpExperts> made(new MadeUpExperts(std::move(layouts), expert_count));
  uint64_t bytes = 0;
  for (const ExpertLayout& layout : made->layouts_) {
    made->layer_offsets_bytes_.push_back(bytes);
    bytes += layout.stride_bytes() * expert_count;
  }
  HEARTH_ASSIGN_OR_RETURN(made->arena_, AnonymousMapping::Create(bytes));
  for (uint32_t l = 0; l < made->layouts_.size(); ++l) {
    const ExpertLayout& layout = made->layouts_[l];
    const auto blob = [&](uint32_t e) {
      return made->arena_.data().subspan(made->OffsetOf({LayerId(l), ExpertId(e)}),
                                         layout.blob_bytes());
    };
    // The first layer of a layout is generated in part, everything else is copied from it.
    uint32_t source = 0;
    while (made->layouts_[source] != layout) ++source;
    const uint32_t distinct = std::min(kDistinctCount, expert_count);
    if (source == l) {
      team.ForEach(distinct, [&](uint32_t, uint32_t e) {
        FillSyntheticExpert(layout, {LayerId(l), ExpertId(e)}, kSeed, blob(e));
      });
    }
    team.ForEach(expert_count, [&](uint32_t, uint32_t e) {
      if (source == l && e < distinct) return;
      const std::span<const std::byte> from =
          made->Blob({LayerId(source), ExpertId((e + 7 * l) % distinct)});
      std::copy(from.begin(), from.end(), blob(e).begin());
    });
    if (progress) {
      progress(made->layer_offsets_bytes_[l] + layout.stride_bytes() * expert_count, bytes);
    }
  }
  return made;
}

std::unique_ptr<ExpertStore> MadeUpExperts::MakeStore() const {
  return std::make_unique<MadeUpStore>(*this);
}

}  // namespace hearth::cli
