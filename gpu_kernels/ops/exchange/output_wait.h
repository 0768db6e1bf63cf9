// What a kernel needs to wait for the host's outputs of a layer: for kernels that read them and
// wait for them themselves (output_wait.cuh).
#pragma once

#include <cstdint>

namespace hearth {

struct CardState;

// What every kernel of a layer that has to do with the exchange gets: device addresses.
struct LayerWords {
  CardState* state = nullptr;
  uint64_t* error = nullptr;
  uint64_t* stamps = nullptr;  // of layer and window 0; windows are stamp_stride words apart
  uint32_t stamp_stride = 0;
  uint32_t layer = 0;
  uint64_t wait_ns_max = 0;
};

struct OutputWait {
  LayerWords words;                   // state == nullptr: there is nothing to wait for
  const uint64_t* outputs = nullptr;  // host memory: the word that follows the outputs
};

}  // namespace hearth
