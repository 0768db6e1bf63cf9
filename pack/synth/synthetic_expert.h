// One made-up expert, straight in the bytes of its blob: no encoder runs, so that a pack of any
// size is made as fast as it can be written. For packs that measure how experts travel, not what
// they say: weights are noise of the size that trained ones have, so that activations stay finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pack/format/expert_layout.h"
#include "runtime/base/ids.h"

namespace hearth {

// Fills the blob: blob.size() == layout.blob_bytes(), every byte of it, padding rows zero. A pure
// function of its arguments; thread-safe. Gate and up rows answer an input of RMS 0.5 (what a
// hyper-connection hands on) with RMS 1; the expert's output then has RMS near 0.6.
void FillSyntheticExpert(const ExpertLayout& layout, ExpertKey key, uint64_t seed,
                         std::span<std::byte> blob);

}  // namespace hearth
