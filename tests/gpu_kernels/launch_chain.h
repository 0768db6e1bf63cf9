// A chain of small kernels of which every block reads what several of the one before it wrote.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"

namespace hearth {

inline constexpr uint32_t kChainThreads = 256;

inline constexpr uint32_t kChainTerms = 4;

// to[i] = 3 * from[count - 1 - i] + sum of the kChainTerms words of from at multiples of
// count / kChainTerms; for i below `count`, a multiple of kChainThreads. An overlapping launch if
// `overlaps`.
absl::Status LaunchChainLink(const uint32_t* from, uint32_t* to, uint32_t count, bool overlaps,
                             CudaStreamView stream);

}  // namespace hearth
