// Strong ids: a layer, an expert and a slot are all small integers and none passes for another.
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

namespace hearth {

template <class Tag>
struct Id {  // 4 bytes; never converts to or from an integer by itself
  constexpr explicit Id(uint32_t v = UINT32_MAX) : value(v) {}
  constexpr bool valid() const { return value != UINT32_MAX; }
  constexpr auto operator<=>(const Id&) const = default;
  template <class H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value);
  }
  uint32_t value;
};

using LayerId = Id<struct LayerTag>;    // transformer block, 0-based; the MTP block comes last
using ExpertId = Id<struct ExpertTag>;  // routed expert within its layer, 0-based
using SlotId = Id<struct SlotTag>;      // fixed-size buffer within one tier

using TokenId = int32_t;  // vocabulary index; the model's own numbering, so a plain integer

struct ExpertKey {
  LayerId layer;
  ExpertId expert;
  constexpr auto operator<=>(const ExpertKey&) const = default;
  template <class H>
  friend H AbslHashValue(H h, ExpertKey k) {
    return H::combine(std::move(h), k.layer.value, k.expert.value);
  }
};
static_assert(sizeof(ExpertKey) == 8);

}  // namespace hearth
