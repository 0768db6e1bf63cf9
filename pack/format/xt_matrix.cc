#include "pack/format/xt_matrix.h"

#include "pack/format/xt_code.h"

namespace hearth {
namespace {

// The bytes of one stream around a chunk. Lines of B count from the chunk's first; -1 and -2 are
// those of the chunk before it in the circle.
struct Stream {
  const std::byte* chunk;
  const std::byte* before;
  uint32_t lane;
  int lines;  // of B in a chunk

  uint8_t Line(int l) const {
    const std::byte* from = l >= 0 ? chunk : before;
    const int line = l >= 0 ? l : l + lines;
    return std::to_integer<uint8_t>(from[static_cast<uint32_t>(line) * kXtLaneCount + lane]);
  }
};

// The low `count` bits of `now`, the others of `before`.
uint8_t Select(uint32_t count, uint8_t now, uint8_t before) {
  const uint32_t low = (1u << count) - 1;
  return static_cast<uint8_t>((now & low) | (before & ~low));
}

int LevelOf(const XtCode& code, const Stream& stream, uint32_t step) {
  const uint32_t phase = step % code.phase_count;
  const auto l = static_cast<int>(step / code.fields_per_byte());
  const uint32_t fresh_bits = (step % code.fields_per_byte() + 1) * code.field_bits();
  const auto recent = [&](int at) {
    return Select(fresh_bits, stream.Line(at), stream.Line(at - 1));
  };
  if (code.bits != 3) {
    return code.Level(phase, code.Hash(phase, recent(l), recent(l - 1), recent(l - 2)));
  }
  const auto high_line = [&](const std::byte* from) {
    return std::to_integer<uint8_t>(from[2 * kXtLaneCount + stream.lane]);
  };
  const uint8_t high = Select(step + 1, high_line(stream.chunk), high_line(stream.before));
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
  const uint32_t before = band == begin ? shape.group_begin(group + 1) - 1 : band - 1;
  for (uint32_t lane = 0; lane < kXtLaneCount; ++lane) {
    const Stream stream = {.chunk = codes + shape.chunk_offset_bytes(block, band),
                           .before = codes + shape.chunk_offset_bytes(block, before),
                           .lane = lane,
                           .lines = shape.bits == 4 ? 4 : 2};
    for (uint32_t step = 0; step < kXtStepsPerChunk; ++step) {
      (*levels)[step][lane] = static_cast<int8_t>(LevelOf(code, stream, step));
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
  const float factor = RotationFactor(block);
  Butterflies(row, block);
  for (uint32_t i = 0; i < row.size(); ++i) row[i] = RotationSign(i) * (row[i] * factor);
}

}  // namespace hearth
