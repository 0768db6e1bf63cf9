// MakeXtDecodeTables, on the host: the exclusive ors that the kernels make of its entries, looked
// up as the kernels do, are the levels of the format (pack/format/xt_matrix.h) for random streams.
#include "gpu_kernels/ops/xt/xt_decode_tables.h"

#include <cstddef>
#include <vector>

#include "gtest/gtest.h"

#include "pack/format/xt_code.h"
#include "pack/format/xt_matrix.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

using Words = std::array<uint32_t, 4>;  // 0 and 1 of a band, 2 and 3 of the next

uint32_t Entry(const XtDecodeTables::Slot& slot, uint32_t byte, uint32_t word) {
  EXPECT_LT(word, slot.words);
  uint32_t entry = 0;
  for (uint32_t bit = 0; bit < 8; ++bit) {
    if ((byte >> bit & 1) != 0) entry ^= slot.column[bit][word];
  }
  return entry;
}

// What a line's own byte puts into its word: `first` is the place of its first step there.
uint32_t Own(uint32_t bits, XtWordForm form, uint32_t byte, uint32_t first) {
  uint32_t word = 0;
  const XtCode& code = XtCodeOf(bits);
  const uint32_t fields = code.fields_per_byte();
  for (uint32_t n = first; n < first + fields; ++n) {
    const uint32_t place = XtStepOrder(bits)[n] % fields;
    const uint32_t hash = byte & ((2u << ((place + 1) * code.field_bits() - 1)) - 1);
    const bool is_high = n % 2 == 1;
    EXPECT_EQ(is_high, code.newest_is_high(place));
    if (form == XtWordForm::kHashBytes) {
      word |= hash << (8 * n);
    } else {
      word |= (is_high ? hash >> 4 : hash & 15) << (4 * n);
      word |= (is_high ? hash & 15 : hash >> 4) << (16 + 4 * n);
    }
  }
  return word;
}

// Adds what the bytes of one band put into words.
void AddBand(uint32_t bits, XtDecodeKind kind, const XtDecodeTables& tables,
             const std::array<uint8_t, 4>& line, Words* words) {
  const auto add = [&](uint32_t word, uint32_t slot, uint32_t from, uint32_t index) {
    (*words)[word] ^= Entry(tables.slots[slot], line[from], index);
  };
  const bool shared = kind == XtDecodeKind::kSplit;
  if (bits == 4) {
    for (uint32_t l = 0; l < 4; ++l) {
      (*words)[l / 2] ^= Own(bits, XtFormOf(kind, l / 2), line[l], l % 2 * 2);
    }
    add(0, 0, 0, 0);
    add(1, 0, 0, 1);
    add(1, shared ? 0 : 1, 2, 0);
    add(2, shared ? 0 : 1, 2, 1);
    add(1, shared ? 1 : 2, 1, 0);
    add(2, shared ? 1 : 2, 3, shared ? 0 : 1);
    return;
  }
  for (uint32_t l = 0; l < 2; ++l) (*words)[l] ^= Own(bits, XtFormOf(kind, l), line[l], 0);
  if (bits == 3) {
    for (uint32_t word = 0; word < 4; ++word) add(word, 0, 2, word);
    add(1, 1, 0, 0);
    add(2, shared ? 1 : 2, 1, shared ? 1 : 0);
    return;
  }
  add(1, 0, 0, 0);
  add(2, 0, 0, 1);
  add(2, 1, 1, 0);
  add(3, 1, 1, 1);
}

uint32_t SplitEntry(const XtDecodeTables& tables, uint32_t t, uint32_t nibble) {
  return tables.split[t][nibble / 4] >> (8 * (nibble % 4)) & 0xFFu;
}

// level + kXtLevelOffset of place n of a word.
uint32_t LevelOf(const XtDecodeTables& tables, XtWordForm form, uint32_t word, uint32_t n) {
  uint32_t a = word >> (4 * n) & 15;
  uint32_t b = word >> (16 + 4 * n) & 15;
  if (form == XtWordForm::kHashBytes) {
    const uint32_t hash = word >> (8 * n) & 0xFF;
    a = n % 2 == 1 ? hash >> 4 : hash & 15;
    b = n % 2 == 1 ? hash & 15 : hash >> 4;
  }
  return SplitEntry(tables, 0, a) + SplitEntry(tables, 1, b) + SplitEntry(tables, 2, a ^ b);
}

TEST(XtDecodeTables, GiveTheLevelsOfTheFormat) {
  Prng prng(601);
  for (const uint32_t bits : {2u, 3u, 4u}) {
    for (const XtDecodeKind kind :
         {XtDecodeKind::kSplit, XtDecodeKind::kHalfLevels, XtDecodeKind::kLevels}) {
      const XtDecodeTables tables = MakeXtDecodeTables(bits, kind);
      for (const uint32_t bands : {1u, 2u, 5u, 40u}) {
        const XtShape shape = {bands * kBandRows, 32, bits};
        std::vector<std::byte> codes(shape.bytes());
        for (std::byte& b : codes) b = static_cast<std::byte>(prng.Below(256));
        for (uint32_t lane = 0; lane < kXtLaneCount; lane += 21) {
          Words words{};
          for (uint32_t i = 0; i <= bands; ++i) {
            const uint32_t band = (i + bands - 1) % bands;  // the one before the first, then all
            std::array<uint8_t, 4> line{};
            for (uint32_t l = 0; l < bits; ++l) {
              line[l] = static_cast<uint8_t>(codes[band * shape.chunk_bytes() + l * 64 + lane]);
            }
            words = {words[2], words[3], 0, 0};
            AddBand(bits, kind, tables, line, &words);
            if (i == 0) continue;
            XtLevels levels;
            DecodeXtChunk(shape, codes.data(), 0, band, &levels);
            for (uint32_t at = 0; at < 8; ++at) {
              const uint32_t step = at / 4 * 4 + XtStepOrder(bits)[at % 4];
              ASSERT_EQ(
                  static_cast<int>(LevelOf(tables, XtFormOf(kind, at / 4), words[at / 4], at % 4)),
                  levels[step][lane] + kXtLevelOffset)
                  << bits << " bits, kind " << static_cast<int>(kind) << ", " << bands
                  << " bands, lane " << lane << ", band " << band << ", step " << step;
            }
          }
        }
      }
    }
  }
}

TEST(XtDecodeTables, EntriesOfThePermutedTablesHaveNoSign) {
  for (const uint32_t bits : {2u, 3u, 4u}) {
    const XtDecodeTables tables = MakeXtDecodeTables(bits, XtDecodeKind::kSplit);
    for (const auto& table : tables.split) {
      for (const uint32_t word : table) EXPECT_EQ(word & 0x80808080u, 0u) << bits;
    }
  }
}

}  // namespace
}  // namespace hearth
