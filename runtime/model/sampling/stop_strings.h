// Finds the strings that end an output in text that arrives in pieces. What could still become a
// stop string is held back, so that no part of one is ever delivered; how the text is cut into
// pieces changes nothing in what is delivered.
//
// The first stop string to be complete ends the text (of several that end at the same byte, the
// longest), and the text is cut just before it. Works on bytes: with UTF-8 on both sides a match
// starts and ends between characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth {

// Bounds the automaton to 64 Ki states, about 1.3 MB. APIs allow 4 to 16 stops of a few words.
inline constexpr uint32_t kStopStringCountMax = 256;
inline constexpr uint32_t kStopStringBytesMax = 65536;  // all together

class StopStringMatcher {
 public:
  // InvalidArgument for an empty stop string and beyond the bounds above. No stops: text passes
  // through.
  static absl::StatusOr<StopStringMatcher> Create(std::span<const std::string> stops);

  // Takes the next piece and appends to `delivered` what can no longer be part of a stop string.
  // True once a stop string is complete; after that nothing more is delivered.
  bool Push(std::string_view piece, std::string& delivered);
  // The text ended otherwise: appends what was held back, because it never became a stop string.
  void Finish(std::string& delivered);
  // Ready for another text.
  void Reset();

  bool stopped() const { return stop_index_ != kNoStop; }
  uint32_t stop_index() const { return stop_index_; }  // which of `stops`, once stopped()
  // Bytes of the last piece up to the end of the match, once stopped(): the token that holds them
  // is the last one of the output.
  size_t piece_bytes_used() const { return piece_bytes_used_; }
  size_t held_bytes() const { return held_.size(); }

 private:
  static constexpr uint32_t kNoStop = UINT32_MAX;

  // Aho-Corasick: a node is a prefix of some stop strings, the root the empty one. In a node's text
  // all that can still grow into a stop string is the node's own prefix.
  struct Node {
    uint32_t first_child = 0;   // 0: none; the root is nobody's child
    uint32_t next_sibling = 0;  // 0: none
    uint32_t fallback = 0;      // the longest proper suffix that is a node
    uint32_t depth = 0;         // bytes
    uint32_t stop = kNoStop;    // the longest stop string that ends here
    uint8_t byte = 0;           // on the edge from its parent
  };

  StopStringMatcher();
  uint32_t ChildOf(uint32_t node, uint8_t byte) const;  // 0: none
  uint32_t Step(uint32_t node, uint8_t byte) const;
  void Insert(std::string_view stop, uint32_t index);
  void LinkFallbacks();

  std::vector<Node> nodes_;
  std::vector<uint32_t> stop_bytes_;  // length of each stop string
  uint32_t state_ = 0;
  uint32_t stop_index_ = kNoStop;
  size_t piece_bytes_used_ = 0;
  std::string held_;  // the last bytes of the text: nodes_[state_].depth of them
};

}  // namespace hearth
