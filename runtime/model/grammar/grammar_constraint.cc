// What was pushed, the states PopTo goes back to, and the masks that are kept.
#include "runtime/model/grammar/grammar_constraint.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace hearth::grammar {
namespace {

constexpr uint32_t kMasksMin = 4;
constexpr uint32_t kMasksMax = 64;

}  // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<const Grammar> grammar,
                                     std::shared_ptr<const TokenTrie> trie, LeafMaskSources sources,
                                     std::vector<TokenId> stop_tokens, uint64_t budget_bytes)
    : trie_(std::move(trie)),
      stop_tokens_(std::move(stop_tokens)),
      budget_bytes_(budget_bytes),
      machine_(std::move(grammar)),
      token_masks_(trie_, std::move(sources)) {
  HEARTH_CHECK(!stop_tokens_.empty());
  const uint64_t mask_bytes = uint64_t{trie_->words()} * sizeof(uint64_t);
  slots_max_ = static_cast<uint32_t>(
      std::clamp<uint64_t>(budget_bytes_ / 2 / mask_bytes, kMasksMin, kMasksMax));
  recent_.push_back(machine_.Start());
}

bool GrammarConstraint::IsStop(TokenId token) const {
  return std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end();
}

bool GrammarConstraint::Complete() const {
  return recent_.back() == kStopped || machine_.Finished(recent_.back());
}

std::span<const uint64_t> GrammarConstraint::Allowed() {
  const ConfigId config = recent_.back();
  const auto known = slot_of_.find(config);
  if (known != slot_of_.end()) return masks_[known->second];
  const uint32_t slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % slots_max_;
  if (slot == masks_.size()) {
    masks_.emplace_back(trie_->words());
    mask_config_.push_back(config);
  } else {
    slot_of_.erase(mask_config_[slot]);
    mask_config_[slot] = config;
  }
  slot_of_.emplace(config, slot);
  std::vector<uint64_t>& mask = masks_[slot];
  if (config == kStopped) {
    std::fill(mask.begin(), mask.end(), 0);
  } else {
    token_masks_.Compute(machine_, config, mask);
  }
  if (Complete()) {
    for (const TokenId stop : stop_tokens_) {
      const uint32_t bit = static_cast<uint32_t>(stop);
      mask[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }
  return mask;
}

ConfigId GrammarConstraint::After(ConfigId config, TokenId token) {
  if (IsStop(token) && (config == kStopped || machine_.Finished(config))) return kStopped;
  HEARTH_CHECK(config != kStopped);
  const std::string_view bytes = trie_->Bytes(token);
  if (bytes.empty()) {
    config = machine_.StepToken(config, token);
  }
  for (const char c : bytes) config = machine_.Step(config, static_cast<uint8_t>(c));
  HEARTH_CHECK(config != kDeadConfig);  // Allowed() allowed it
  return config;
}

void GrammarConstraint::Append(ConfigId config) {
  if (recent_.size() == kRecentMax) {
    recent_.erase(recent_.begin(), recent_.begin() + kRecentMax / 2);
    recent_begin_ += kRecentMax / 2;
  }
  recent_.push_back(config);
}

void GrammarConstraint::Push(TokenId token) {
  const ConfigId next = After(recent_.back(), token);
  tokens_.push_back(token);
  Append(next);
  StayWithinBudget();
}

void GrammarConstraint::PopTo(uint32_t count) {
  HEARTH_CHECK(count <= tokens_.size());
  tokens_.resize(count);
  if (count >= recent_begin_) {
    recent_.resize(count - recent_begin_ + 1);
    return;
  }
  recent_begin_ = 0;
  recent_.assign(1, machine_.Start());
  for (const TokenId token : tokens_) {
    Append(After(recent_.back(), token));
    StayWithinBudget();
  }
}

void GrammarConstraint::StayWithinBudget() {
  if (machine_.MemoryBytes() <= budget_bytes_ / 2) return;
  std::vector<ConfigId> kept;
  for (const ConfigId config : recent_) {
    if (config != kStopped) kept.push_back(config);
  }
  machine_.Forget(kept);
  size_t next = 0;
  for (ConfigId& config : recent_) {
    if (config != kStopped) config = kept[next++];
  }
  slot_of_.clear();
  mask_config_.assign(mask_config_.size(), kDeadConfig);
}

uint64_t GrammarConstraint::MemoryBytes() const {
  return machine_.MemoryBytes() + masks_.size() * uint64_t{trie_->words()} * sizeof(uint64_t) +
         tokens_.capacity() * sizeof(TokenId);
}

}  // namespace hearth::grammar
