// Byte sizes: literals (64_MiB), the parser that flags and configuration share, and the printer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hearth {

constexpr uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

// Accepts "24GiB", "1.5 GiB", "512MiB", "4KiB", "100B": a unit is required, so that nobody has to
// guess what 8 means. Whole numbers are exact, decimals are rounded down to bytes. Refused with the
// accepted forms: signs, exponents, other units, a fraction of B, 2^63 bytes and more.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// "63.3 GiB", "512 MiB", "100 B": three significant digits, four from 1000 on.
std::string FormatBytes(uint64_t bytes);

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace hearth
