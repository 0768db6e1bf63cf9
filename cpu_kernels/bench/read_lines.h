// Reads memory and does next to nothing with it: the floor under every kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cpu_kernels/dispatch/cpu_kernels.h"

namespace hearth {

// Processors differ in the order of reading that they like best; a probe takes the fastest.
enum class ReadOrder : uint8_t {
  kSequential,
  kFourStreams,  // four quarters side by side
  kTwoPages,     // pages of 4 KiB, two side by side
};
inline constexpr std::array kReadOrders = {ReadOrder::kSequential, ReadOrder::kFourStreams,
                                           ReadOrder::kTwoPages};

inline constexpr uint64_t kReadGrainBytes = 2048;  // what ReadLines reads is a multiple of it

// Loads every line of [p, p + bytes) once with the widest registers of `isa`, and returns the
// exclusive or of its 64-bit words, so that no load can be left out. `p` is 64-byte aligned,
// `bytes` a multiple of kReadGrainBytes.
uint64_t ReadLines(Isa isa, ReadOrder order, const std::byte* p, uint64_t bytes);

}  // namespace hearth
