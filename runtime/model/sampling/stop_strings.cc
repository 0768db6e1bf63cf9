#include "runtime/model/sampling/stop_strings.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hearth {

StopStringMatcher::StopStringMatcher() : nodes_(1) {}

absl::StatusOr<StopStringMatcher> StopStringMatcher::Create(std::span<const std::string> stops) {
  if (stops.size() > kStopStringCountMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stop has ", stops.size(), " strings, accepted are at most ", kStopStringCountMax));
  }
  StopStringMatcher matcher;
  size_t bytes = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop string ", i, " is empty, accepted is one byte or more"));
    }
    bytes += stops[i].size();
    if (bytes > kStopStringBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("stop strings hold more than ",
                                                     kStopStringBytesMax,
                                                     " bytes, which is the most accepted"));
    }
    matcher.Insert(stops[i], static_cast<uint32_t>(i));
  }
  matcher.LinkFallbacks();
  return matcher;
}

uint32_t StopStringMatcher::ChildOf(uint32_t node, uint8_t byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void StopStringMatcher::Insert(std::string_view stop, uint32_t index) {
  uint32_t node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t child = ChildOf(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child,
                        .depth = nodes_[node].depth + 1,
                        .byte = byte});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  if (nodes_[node].stop == kNoStop) nodes_[node].stop = index;  // of equal stops the first
  stop_bytes_.push_back(static_cast<uint32_t>(stop.size()));
}

// Breadth first: fallbacks are shorter than the node, so they are complete when a node needs them.
void StopStringMatcher::LinkFallbacks() {
  std::vector<uint32_t> order = {0};
  order.reserve(nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t node = order[i];
    for (uint32_t child = nodes_[node].first_child; child != 0;
         child = nodes_[child].next_sibling) {
      const uint32_t fallback = node == 0 ? 0 : Step(nodes_[node].fallback, nodes_[child].byte);
      nodes_[child].fallback = fallback;
      if (nodes_[child].stop == kNoStop) nodes_[child].stop = nodes_[fallback].stop;
      order.push_back(child);
    }
  }
}

uint32_t StopStringMatcher::Step(uint32_t node, uint8_t byte) const {
  for (;;) {
    const uint32_t child = ChildOf(node, byte);
    if (child != 0 || node == 0) return child;
    node = nodes_[node].fallback;
  }
}

bool StopStringMatcher::Push(std::string_view piece, std::string& delivered) {
  if (stopped()) return true;
  for (size_t i = 0; i < piece.size(); ++i) {
    state_ = Step(state_, static_cast<uint8_t>(piece[i]));
    if (nodes_[state_].stop == kNoStop) continue;
    stop_index_ = nodes_[state_].stop;
    piece_bytes_used_ = i + 1;
    held_.append(piece.substr(0, i + 1));
    delivered.append(held_, 0, held_.size() - stop_bytes_[stop_index_]);
    held_.clear();
    return true;
  }
  held_.append(piece);
  const size_t released = held_.size() - nodes_[state_].depth;
  delivered.append(held_, 0, released);
  held_.erase(0, released);
  return false;
}

void StopStringMatcher::Finish(std::string& delivered) {
  if (!stopped()) delivered.append(held_);
  held_.clear();
  state_ = 0;
}

void StopStringMatcher::Reset() {
  held_.clear();
  state_ = 0;
  stop_index_ = kNoStop;
  piece_bytes_used_ = 0;
}

}  // namespace hearth
