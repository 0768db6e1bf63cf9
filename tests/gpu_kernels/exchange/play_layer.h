// A game that host and card play through the exchange: what the card publishes of a layer follows
// from all that it was told of the layer before, so that one lost, stale or torn word shows up in
// the next routes. Both sides compute with the functions below.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/ops/exchange/window_exchange.h"

namespace hearth {

// What a number in the game is about.
enum class PlayPart : uint32_t {
  kExpert,
  kWeight,
  kQ,
  kScale,
  kSum16,
  kRotatedQ,
  kRotatedScale,
  kRotatedSum,
  kX,
  kHitItem,
  kHitEntry,
  kLateItem,
  kLateEntry,
  kOnCard,
  kOutput
};

HEARTH_BOTH_SIDES constexpr uint64_t PlayMix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
// Summed over everything that the card was told, in any order.
HEARTH_BOTH_SIDES constexpr uint64_t PlayTerm(PlayPart part, uint64_t index, uint64_t a,
                                              uint64_t b) {
  return PlayMix(PlayMix(PlayMix(static_cast<uint64_t>(part) << 32 | index) + a) + b);
}
HEARTH_BOTH_SIDES constexpr uint64_t PlayItemTerm(PlayPart part, uint64_t index, uint64_t address,
                                                  uint32_t entry_begin, uint32_t entry_count) {
  return PlayTerm(part, index, address, uint64_t{entry_begin} << 32 | entry_count);
}
// Word `index` of what is published after `digest`.
HEARTH_BOTH_SIDES constexpr uint32_t PlayWord(uint64_t digest, PlayPart part, uint32_t index) {
  return static_cast<uint32_t>(
      PlayMix(digest ^ PlayMix(static_cast<uint64_t>(part) << 32 | index)));
}
inline constexpr uint32_t kPlayExperts = 40;  // few, so that rows often share one
HEARTH_BOTH_SIDES constexpr uint32_t PlayExpert(uint64_t digest, uint32_t index) {
  return PlayWord(digest, PlayPart::kExpert, index) % kPlayExperts;
}

// Device addresses of what a layer publishes, all forms, and of the sum so far.
struct PlayBuffers {
  PublishArgs args;
  uint64_t* digest = nullptr;
};

// The first layer's routes and rows; then, after a layer's waits, those of the next.
absl::Status LaunchPlayStart(const WindowExchange& exchange, const PlayBuffers& buffers,
                             CudaStreamView stream);
absl::Status LaunchPlayLayer(const WindowExchange& exchange, LayerId layer,
                             const PlayBuffers& buffers, CudaStreamView stream);

}  // namespace hearth
