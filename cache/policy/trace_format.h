// The bytes of a trace file; TRACE.md describes them with an example.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hearth {

inline constexpr std::array<char, 8> kTraceMagic = {'H', 'R', 'T', 'R', 'O', 'U', 'T', 'E'};
inline constexpr uint32_t kTraceVersion = 1;
inline constexpr uint32_t kTraceHasMtp = 1;  // flag: the model has an MTP layer, not in the trace

inline constexpr uint32_t kTraceLayersMax = 1024;
inline constexpr uint32_t kTraceExpertsMax = 65536;  // a route is 16 bits
inline constexpr uint32_t kTraceRanksMax = 256;

// After it: uint64_t text_begins[text_count], uint16_t routes[token_count][layer_count][ranks],
// uint32_t CRC-32C of everything before. Little-endian; nothing in between or behind.
struct TraceHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t flags;
  uint32_t layer_count;
  uint32_t expert_count;
  uint32_t ranks;
  uint32_t reserved;  // 0
  uint64_t token_count;
  uint64_t text_count;
  std::array<char, 32> model_xxh3_128;      // lower-case hex digits; zeros: not known
  std::array<char, 32> tokenizer_xxh3_128;  // as well
};
static_assert(sizeof(TraceHeader) == 112 && alignof(TraceHeader) == 8);
static_assert(offsetof(TraceHeader, token_count) == 32);
static_assert(offsetof(TraceHeader, tokenizer_xxh3_128) == 80);
static_assert(std::has_unique_object_representations_v<TraceHeader>, "no padding on disk");
static_assert(std::endian::native == std::endian::little);

}  // namespace hearth
