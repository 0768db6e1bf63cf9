// Random numbers as arguments: SplitMix64 for streams (tests, generators) and a counter-based
// generator whose n-th number depends on (seed, counter) alone, so that sampling does not depend on
// batching.
#pragma once

#include <cstdint>

namespace hearth {

// SplitMix64 finaliser with the gamma added first (Steele, Lea, Flood 2014); also the n-gram
// hash's.
constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    const uint64_t value = SplitMix64(state_);
    state_ += 0x9E3779B97F4A7C15ull;
    return value;
  }
  // [0, bound), bound > 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // [0, 1), 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Number `index` of the stream that `seed` and `counter` (a token position) name; [0, 1), 53 bits.
constexpr double CounterUniform(uint64_t seed, uint64_t counter, uint32_t index) {
  const uint64_t a = SplitMix64(seed ^ SplitMix64(counter));
  return static_cast<double>(SplitMix64(a + index) >> 11) * 0x1p-53;
}

}  // namespace hearth
