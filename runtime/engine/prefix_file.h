// One image on disk: a header that says whose state it is, of which tokens, and what must follow;
// then the fixed part and the spans since the image that it goes on from.
//
//   offset  bytes
//        0      8  magic
//        8      4  version
//       12      4  header bytes H, a multiple of 4,096
//       16      8  bytes of the file
//       24     16  binding: hash of everything that the bits depend on but the tokens
//       40      8  number of this file
//       48      8  number of the file that it goes on from; 0: none
//       56      8  seal of that file
//       64      4  tokens before it; 68: rows of the MTP layer before it
//       72      4  rows of the MTP layer of the image, 0 or tokens - 1
//       76      4  spans; 80: bytes of the salt; 84: zero
//       88      8  bytes of the fixed part; 96: their hash
//      104         salt, zeros up to a multiple of 8
//                  each span: tokens, cuts, end of its rows of the MTP layer, zero (4 each), bytes,
//                  hash (8 each); then its tokens and its cuts (4 each), zeros up to a multiple of
//                  8
//      H-8      8  seal: hash of the header up to here
//        H         fixed part, then the spans, each at a multiple of 4,096
//
// Integers are little-endian, hashes XXH3 with 64 bits, the binding with 128.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/backend/sequence_image.h"
#include "runtime/base/file.h"
#include "runtime/base/ids.h"

namespace hearth {

inline constexpr uint64_t kPrefixFileAlignBytes = 4096;
inline constexpr uint64_t kPrefixHeaderBytesMax = 32 << 20;  // of a context of 4 million tokens

using PrefixBinding = std::array<std::byte, 16>;
// Of a text that names all of it.
PrefixBinding HashPrefixBinding(std::string_view text);

// Bytes of a file that a part has, and their hash.
struct PrefixPart {
  uint64_t offset_bytes = 0;
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
};
uint64_t PrefixPartHash(std::span<const std::byte> bytes);

struct PrefixFileSpan {
  SpanRange range;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> cuts;
  PrefixPart part;
};

struct PrefixFileHeader {
  PrefixBinding binding{};
  uint64_t number = 0;
  uint64_t parent_number = 0;
  uint64_t parent_seal = 0;
  uint32_t draft_count = 0;
  std::string salt;
  PrefixPart fixed;
  std::vector<PrefixFileSpan> spans;  // at least one
  uint64_t file_bytes = 0;
  uint64_t seal = 0;

  uint32_t token_begin() const { return spans.front().range.begin; }
  uint32_t token_end() const { return spans.back().range.end; }
};

// Fills in offsets, file_bytes and seal from lengths and hashes, and returns the header's bytes.
std::string EncodePrefixHeader(PrefixFileHeader& header);

// DataLoss for a file that is cut, damaged or not one of these, with what is wrong with it.
absl::StatusOr<PrefixFileHeader> ReadPrefixHeader(const RandomAccessFile& file);

}  // namespace hearth
