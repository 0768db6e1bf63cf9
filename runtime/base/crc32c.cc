#include "runtime/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hearth {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t ExtendByTable(const unsigned char* p, size_t n, uint32_t c) {
  for (size_t i = 0; i < n; ++i) c = (c >> 8) ^ kTable[(c ^ p[i]) & 0xFF];
  return c;
}

#if defined(__x86_64__)
// GF(2) matrix of "append n zero bytes", so that three streams run side by side: the instruction
// has a latency of three cycles and a throughput of one.
constexpr size_t kStripeBytes = 4096;

constexpr uint32_t MultiplyModulo(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return product;
}

constexpr uint32_t PowerOfX(size_t exponent) {
  uint32_t result = 0x80000000u;  // the polynomial 1, bit-reflected
  uint32_t square = 0x40000000u;  // the polynomial x
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = MultiplyModulo(result, square);
    square = MultiplyModulo(square, square);
  }
  return result;
}
constexpr uint32_t kShiftOneStripe = PowerOfX(kStripeBytes * 8);

uint64_t LoadWord(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(const unsigned char* p, size_t n,
                                                               uint32_t c) {
  while (n >= 3 * kStripeBytes) {
    uint64_t c0 = c;
    uint64_t c1 = 0;
    uint64_t c2 = 0;
    for (size_t i = 0; i < kStripeBytes; i += 8) {
      c0 = _mm_crc32_u64(c0, LoadWord(p + i));
      c1 = _mm_crc32_u64(c1, LoadWord(p + kStripeBytes + i));
      c2 = _mm_crc32_u64(c2, LoadWord(p + 2 * kStripeBytes + i));
    }
    c = MultiplyModulo(kShiftOneStripe, static_cast<uint32_t>(c0)) ^ static_cast<uint32_t>(c1);
    c = MultiplyModulo(kShiftOneStripe, c) ^ static_cast<uint32_t>(c2);
    p += 3 * kStripeBytes;
    n -= 3 * kStripeBytes;
  }
  uint64_t c64 = c;
  for (; n >= 8; p += 8, n -= 8) c64 = _mm_crc32_u64(c64, LoadWord(p));
  return ExtendByTable(p, n, static_cast<uint32_t>(c64));
}
#endif

}  // namespace

uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc) {
  const auto* p = reinterpret_cast<const unsigned char*>(data.data());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~ExtendByInstruction(p, data.size(), ~crc);
#endif
  return ~ExtendByTable(p, data.size(), ~crc);
}

}  // namespace hearth
