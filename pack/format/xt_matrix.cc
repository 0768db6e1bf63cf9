#include "pack/format/xt_matrix.h"

#include "pack/format/xt_code.h"

namespace hearth {
namespace {

// One stream: a circle of `bands` chunks that stand one after another.
struct Stream {
  const std::byte* first;  // its byte in the first line of the first chunk
  uint32_t bands;
  uint64_t chunk_bytes;
  uint32_t lines;  // of B in a chunk

  uint8_t Byte(uint32_t chunk, uint32_t line) const {
    return std::to_integer<uint8_t>(first[chunk * chunk_bytes + line * kXtLaneCount]);
  }
  uint8_t B(uint32_t l) const {
    const uint32_t in_circle = l % (bands * lines);
    return Byte(in_circle / lines, in_circle % lines);
  }
  uint8_t R(uint32_t g) const { return Byte(g % bands, 2); }
};

// The low `count` bits of `now`, the others of `before`.
uint8_t Select(uint32_t count, uint8_t now, uint8_t before) {
  const uint32_t low = (1u << count) - 1;
  return static_cast<uint8_t>((now & low) | (before & ~low));
}

// Of symbol t. Whole turns of the circle are added, so that what lies before is not negative.
int LevelOf(const XtCode& code, const Stream& stream, uint32_t t) {
  const uint32_t phase = t % code.phase_count;
  const uint32_t fields = code.fields_per_byte();
  const uint32_t fresh_bits = (t % fields + 1) * code.field_bits();
  const uint32_t l = t / fields + 4 * stream.bands * stream.lines;
  const auto recent = [&](uint32_t at) {
    return Select(fresh_bits, stream.B(at), stream.B(at - 1));
  };
  if (code.bits != 3) {
    return code.Level(phase, code.Hash(phase, recent(l), recent(l - 1), recent(l - 2)));
  }
  const uint32_t g = t / kXtStepsPerChunk + stream.bands;
  const uint8_t high = Select(t % kXtStepsPerChunk + 1, stream.R(g), stream.R(g - 1));
  return code.Level(phase, code.Hash(phase, recent(l), high, recent(l - 1)));
}

void Butterflies(std::span<float> row, uint32_t block) {
  for (uint32_t span = 1; span < block; span *= 2) {
    for (size_t first = 0; first < row.size(); first += 2 * span) {
      for (size_t i = first; i < first + span; ++i) {
        const float a = row[i];
        const float b = row[i + span];
        row[i] = a + b;
        row[i + span] = a - b;
      }
    }
  }
}

}  // namespace

void DecodeXtChunk(const XtShape& shape, const std::byte* codes, uint32_t block, uint32_t band,
                   XtLevels* levels) {
  const XtCode& code = XtCodeOf(shape.bits);
  const uint32_t group = shape.group_of(band);
  const uint32_t begin = shape.group_begin(group);
  for (uint32_t lane = 0; lane < kXtLaneCount; ++lane) {
    const Stream stream = {.first = codes + shape.chunk_offset_bytes(block, begin) + lane,
                           .bands = shape.group_begin(group + 1) - begin,
                           .chunk_bytes = shape.chunk_bytes(),
                           .lines = shape.bits == 4 ? 4u : 2u};
    for (uint32_t step = 0; step < kXtStepsPerChunk; ++step) {
      const uint32_t t = (band - begin) * kXtStepsPerChunk + step;
      (*levels)[step][lane] = static_cast<int8_t>(LevelOf(code, stream, t));
    }
  }
}

void RotateXt(std::span<float> row) {
  const uint32_t block = RotationBlock(static_cast<uint32_t>(row.size()));
  const float factor = RotationFactor(block);
  for (uint32_t i = 0; i < row.size(); ++i) row[i] = RotationSign(i) * row[i];
  Butterflies(row, block);
  for (float& v : row) v = v * factor;
}

void UnrotateXt(std::span<float> row) {
  const uint32_t block = RotationBlock(static_cast<uint32_t>(row.size()));
  for (uint32_t first = 0; first < row.size(); first += block) {
    UnrotateXtBlock(first, row.subspan(first, block));
  }
}

void UnrotateXtBlock(uint32_t first_col, std::span<float> block) {
  const auto count = static_cast<uint32_t>(block.size());
  const float factor = RotationFactor(count);
  Butterflies(block, count);
  for (uint32_t i = 0; i < count; ++i) {
    block[i] = RotationSign(first_col + i) * (block[i] * factor);
  }
}

}  // namespace hearth
