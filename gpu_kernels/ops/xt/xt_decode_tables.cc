// Contract: gpu_kernels/ops/xt/xt_decode_tables.h.
#include "gpu_kernels/ops/xt/xt_decode_tables.h"

#include <algorithm>

#include "pack/format/xt_code.h"
#include "pack/format/xt_layout.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

// Which line's byte adds to which word.
struct Route {
  uint32_t line;
  uint32_t word;
};

// A bit of a stream's byte: of which step's symbol, and which bit of it.
struct SymbolBit {
  uint32_t step;
  uint32_t bit;
};

SymbolBit SymbolBitOf(const XtCode& code, uint32_t line, uint32_t bit) {
  if (code.bits == 3 && line == 2) return {bit, 2};
  return {line * code.fields_per_byte() + bit / code.field_bits(), bit % code.field_bits()};
}

// A hash at place n of a word.
uint32_t Embed(const XtCode& code, XtWordForm form, uint32_t n, uint32_t phase, uint8_t hash) {
  if (form == XtWordForm::kHashBytes) return uint32_t{hash} << (8 * n);
  const uint32_t low = hash & 15u;
  const uint32_t high = hash >> 4;
  const bool is_high = code.newest_is_high(phase);
  return (is_high ? high : low) << (4 * n) | (is_high ? low : high) << (16 + 4 * n);
}

uint32_t ImageOf(const XtCode& code, XtDecodeKind kind, Route route, uint32_t bit) {
  const SymbolBit from = SymbolBitOf(code, route.line, bit);
  const bool is_fields = code.bits != 3 || route.line < 2;
  uint32_t image = 0;
  for (uint32_t n = 0; n < 4; ++n) {
    const uint32_t step = route.word * 4 + XtStepOrder(code.bits)[n];
    const bool is_own = is_fields && step / code.fields_per_byte() == route.line;
    if (is_own || step < from.step) continue;
    const uint32_t phase = step % code.phase_count;
    image |= Embed(code, XtFormOf(kind, route.word), n, phase,
                   code.Column(phase, step - from.step, from.bit));
  }
  return image;
}

using Routes = std::array<Route, 4>;  // of a slot; `count` of them

void FillSlot(const XtCode& code, XtDecodeKind kind, uint32_t count, const Routes& routes,
              XtDecodeTables::Slot* slot) {
  slot->words = count;
  for (uint32_t bit = 0; bit < 8; ++bit) {
    for (uint32_t i = 0; i < count; ++i) {
      slot->column[bit][i] = ImageOf(code, kind, routes[i], bit);
    }
  }
}

}  // namespace

XtDecodeTables MakeXtDecodeTables(uint32_t bits, XtDecodeKind kind) {
  HEARTH_CHECK(bits >= 2 && bits <= 4);
  const XtCode& code = XtCodeOf(bits);
  XtDecodeTables tables;
  const auto fill = [&](uint32_t slot, uint32_t count, const Routes& routes) {
    FillSlot(code, kind, count, routes, &tables.slots[slot]);
  };
  if (bits == 2) {
    fill(0, 2, {{{0, 1}, {0, 2}}});
    fill(1, 2, {{{1, 2}, {1, 3}}});
  } else if (bits == 3) {
    fill(0, 4, {{{2, 0}, {2, 1}, {2, 2}, {2, 3}}});
    if (kind == XtDecodeKind::kSplit) {
      fill(1, 2, {{{0, 1}, {1, 2}}});
    } else {
      fill(1, 1, {{{0, 1}}});
      fill(2, 1, {{{1, 2}}});
    }
  } else {
    fill(0, 2, {{{0, 0}, {0, 1}}});
    if (kind == XtDecodeKind::kSplit) {
      fill(1, 1, {{{1, 1}}});
    } else {
      fill(1, 2, {{{2, 1}, {2, 2}}});
      fill(2, 2, {{{1, 1}, {3, 2}}});
    }
  }
  std::array<int, 3> least{};
  for (uint32_t t = 0; t < 3; ++t) {
    least[t] = *std::min_element(code.table[t].begin(), code.table[t].end());
  }
  for (uint32_t t = 0; t < 3; ++t) {
    // The three offsets make up kXtLevelOffset.
    const int offset = t == 0 ? kXtLevelOffset + least[1] + least[2] : -least[t];
    for (uint32_t i = 0; i < 16; ++i) {
      const int entry = code.table[t][i] + offset;
      HEARTH_CHECK(entry >= 0 && entry <= 127);
      tables.split[t][i / 4] |= static_cast<uint32_t>(entry) << (8 * (i % 4));
    }
  }
  return tables;
}

}  // namespace hearth
