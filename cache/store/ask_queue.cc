#include "cache/store/ask_queue.h"

#include <utility>

#include "runtime/base/check.h"

namespace hearth {

AskQueue::AskQueue(uint32_t key_count, const std::vector<uint32_t>& class_keys)
    : first_asker_(key_count, kNone),
      last_asker_(key_count, kNone),
      in_line_(key_count, 0),
      since_ns_(key_count, 0),
      askers_(kAskersMax),
      lines_(class_keys.size()),
      hints_(kHintsMax) {
  for (uint32_t i = 0; i < kAskersMax; ++i) askers_[i].next = i + 1 < kAskersMax ? i + 1 : kNone;
  for (size_t c = 0; c < class_keys.size(); ++c) lines_[c].entries.resize(class_keys[c]);
}

bool AskQueue::AddAsker(uint32_t key, RamBlocks::Arrival& arrival) {
  if (free_asker_ == kNone) return false;
  const uint32_t asker = free_asker_;
  free_asker_ = askers_[asker].next;
  askers_[asker] = {std::move(arrival), kNone};
  if (first_asker_[key] == kNone) {
    first_asker_[key] = asker;
  } else {
    askers_[last_asker_[key]].next = asker;
  }
  last_asker_[key] = asker;
  return true;
}

void AskQueue::TakeAskers(uint32_t key, std::vector<RamBlocks::Arrival>& out) {
  for (uint32_t asker = std::exchange(first_asker_[key], kNone); asker != kNone;) {
    out.push_back(std::move(askers_[asker].arrival));
    askers_[asker].arrival = nullptr;
    const uint32_t next = askers_[asker].next;
    askers_[asker].next = std::exchange(free_asker_, asker);
    asker = next;
  }
}

void AskQueue::PushDemand(uint32_t cls, uint32_t key, int64_t now_ns) {
  if (first_asker_[key] == last_asker_[key]) since_ns_[key] = now_ns;
  if (std::exchange(in_line_[key], 1) != 0) return;
  Line& line = lines_[cls];
  HEARTH_CHECK(line.count < line.entries.size());
  line.entries[(line.begin + line.count++) % line.entries.size()] = key;
  ++demand_count_;
}

bool AskQueue::FrontDemand(uint32_t cls, Demand* out) {
  Line& line = lines_[cls];
  while (line.count > 0) {
    const uint32_t key = line.entries[line.begin];
    if (asked(key)) {
      *out = {key, since_ns_[key]};
      return true;
    }
    PopDemand(cls);
  }
  return false;
}

void AskQueue::PopDemand(uint32_t cls) {
  Line& line = lines_[cls];
  HEARTH_CHECK(line.count > 0);
  in_line_[line.entries[line.begin]] = 0;
  line.begin = (line.begin + 1) % static_cast<uint32_t>(line.entries.size());
  --line.count;
  --demand_count_;
}

void AskQueue::PushHint(uint32_t key) {
  if (hint_count_ == kHintsMax) {
    hint_begin_ = (hint_begin_ + 1) % kHintsMax;
    --hint_count_;
  }
  hints_[(hint_begin_ + hint_count_++) % kHintsMax] = key;
}

bool AskQueue::PopHint(uint32_t* key) {
  if (hint_count_ == 0) return false;
  *key = hints_[hint_begin_];
  hint_begin_ = (hint_begin_ + 1) % kHintsMax;
  --hint_count_;
  return true;
}

}  // namespace hearth
