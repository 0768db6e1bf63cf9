// Random choices of the tests of grammars: reproducible, from a seed.
#pragma once

#include <cstdint>

#include "runtime/base/prng.h"

namespace hearth::grammar {

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed) {}
  uint32_t operator()() { return static_cast<uint32_t>(SplitMix64(state_++) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace hearth::grammar
