#include "cpu_kernels/bench/read_lines.h"

#include "cpu_kernels/avx2/target.h"
#include "cpu_kernels/avx512/target.h"
#include "cpu_kernels/bench/kernel_workload.h"
#include "runtime/base/check.h"
#include "runtime/base/load.h"

namespace hearth {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint32_t kRoundLines = 8;

// Rounds of eight lines: 8 / PerStream streams, `apart_bytes` between them, of which each gives its
// next PerStream lines. After `round_count` rounds the walk goes on at the next block.
struct Walk {
  uint64_t apart_bytes;
  uint64_t round_count;
  uint64_t block_bytes;
  uint64_t block_count;
};

template <uint32_t PerStream>
constexpr uint64_t LineOffset(uint32_t line, uint64_t apart_bytes) {
  return line / PerStream * apart_bytes + line % PerStream * kLineBytes;
}

template <uint32_t PerStream>
HEARTH_AVX512 uint64_t ReadAvx512(const Walk& walk, const std::byte* block) {
  __m512i sum[kRoundLines] = {};
  for (uint64_t b = 0; b < walk.block_count; ++b, block += walk.block_bytes) {
    const std::byte* p = block;
    for (uint64_t r = 0; r < walk.round_count; ++r, p += PerStream * kLineBytes) {
      for (uint32_t i = 0; i < kRoundLines; ++i) {
        const std::byte* const line = p + LineOffset<PerStream>(i, walk.apart_bytes);
        sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(line));
      }
    }
  }
  for (uint32_t i = 1; i < kRoundLines; ++i) sum[0] = _mm512_xor_si512(sum[0], sum[i]);
  alignas(kLineBytes) uint64_t words[8];
  _mm512_store_si512(words, sum[0]);
  uint64_t total = 0;
  for (const uint64_t word : words) total ^= word;
  return total;
}

template <uint32_t PerStream>
HEARTH_AVX2 uint64_t ReadAvx2(const Walk& walk, const std::byte* block) {
  __m256i sum[kRoundLines] = {};
  for (uint64_t b = 0; b < walk.block_count; ++b, block += walk.block_bytes) {
    const std::byte* p = block;
    for (uint64_t r = 0; r < walk.round_count; ++r, p += PerStream * kLineBytes) {
      for (uint32_t i = 0; i < kRoundLines; ++i) {
        const auto* const line =
            reinterpret_cast<const __m256i*>(p + LineOffset<PerStream>(i, walk.apart_bytes));
        sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(line));
        sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(line + 1));
      }
    }
  }
  for (uint32_t i = 1; i < kRoundLines; ++i) sum[0] = _mm256_xor_si256(sum[0], sum[i]);
  alignas(kLineBytes) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sum[0]);
  uint64_t total = 0;
  for (const uint64_t word : words) total ^= word;
  return total;
}

template <uint32_t PerStream>
uint64_t ReadScalar(const Walk& walk, const std::byte* block) {
  uint64_t sum[kRoundLines] = {};
  for (uint64_t b = 0; b < walk.block_count; ++b, block += walk.block_bytes) {
    const std::byte* p = block;
    for (uint64_t r = 0; r < walk.round_count; ++r, p += PerStream * kLineBytes) {
      for (uint32_t i = 0; i < kRoundLines; ++i) {
        const std::byte* const line = p + LineOffset<PerStream>(i, walk.apart_bytes);
        for (uint32_t w = 0; w < kLineBytes; w += 8) sum[i] ^= Load<uint64_t>(line + w);
      }
    }
  }
  uint64_t total = 0;
  for (const uint64_t s : sum) total ^= s;
  return total;
}

template <uint32_t PerStream>
uint64_t Read(Isa isa, const Walk& walk, const std::byte* p) {
  switch (isa) {
    case Isa::kScalar:
      return ReadScalar<PerStream>(walk, p);
    case Isa::kAvx2:
      return ReadAvx2<PerStream>(walk, p);
    default:
      return ReadAvx512<PerStream>(walk, p);
  }
}

}  // namespace

uint64_t ReadLines(Isa isa, ReadOrder order, const std::byte* p, uint64_t bytes) {
  HEARTH_CHECK(bytes % kReadGrainBytes == 0);
  const uint64_t rounds = bytes / (kRoundLines * kLineBytes);
  if (order == ReadOrder::kFourStreams) return Read<2>(isa, {bytes / 4, rounds, 0, 1}, p);
  if (order == ReadOrder::kTwoPages && bytes % (2 * kPageBytes) == 0) {
    constexpr uint64_t kBlockRounds = 2 * kPageBytes / (kRoundLines * kLineBytes);
    const uint64_t blocks = bytes / (2 * kPageBytes);
    return Read<4>(isa, {kPageBytes, kBlockRounds, 2 * kPageBytes, blocks}, p);
  }
  return Read<8>(isa, {0, rounds, 0, 1}, p);
}

}  // namespace hearth
