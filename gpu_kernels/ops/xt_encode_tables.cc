// The host arithmetic of gpu_kernels/ops/xt_encode.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/xt_encode.h"

namespace hearth {
namespace {

struct StateBit {
  uint32_t age = 0;
  uint32_t bit = 0;
};

// Order of a state's bits: by age, then bit (pack/quant/xt_trellis.h).
std::vector<StateBit> StateBits(const XtCode& code) {
  std::vector<StateBit> bits;
  for (uint32_t age = 1; age < kXtGpuAgesMax; ++age) {
    for (uint32_t bit = 0; bit < code.bits; ++bit) {
      if (age <= code.Depth(bit)) bits.push_back({age, bit});
    }
  }
  return bits;
}

// The windows that xt_encode.cu is compiled for: bits of a state, by rate.
bool KernelsTake(const XtCode& code, size_t state_bits) {
  const auto depths = [&](uint32_t low, uint32_t high) {
    for (uint32_t bit = 0; bit < code.bits; ++bit) {
      if (code.Depth(bit) != (bit < 2 ? low : high)) return false;
    }
    return true;
  };
  if (code.bits == 2) return state_bits == 14 && depths(7, 7);
  if (code.bits == 3) return state_bits == 15 && depths(4, 7);
  return code.bits == 4 && state_bits == 14 && depths(4, 3);
}

uint8_t Parity(uint8_t value) { return static_cast<uint8_t>(__builtin_parity(value)); }

// An invertible map of GF(2)^8 that takes wanted[i] to 1 << i, if those are independent; else the
// identity. As rows: bit i of the image is the parity of row i with the value.
std::array<uint8_t, 8> BasisFor(const std::array<uint8_t, 3>& wanted) {
  // Columns: the wanted vectors, then unit vectors that keep them independent; then the inverse by
  // elimination.
  std::array<uint8_t, 8> columns{};
  uint32_t count = 0;
  std::array<uint8_t, 8> reduced{};  // echelon form, by leading bit
  const auto take = [&](uint8_t vector) {
    uint8_t rest = vector;
    for (int bit = 7; bit >= 0 && rest != 0; --bit) {
      if ((rest >> bit & 1) == 0) continue;
      if (reduced[bit] == 0) {
        reduced[bit] = rest;
        columns[count++] = vector;
        return true;
      }
      rest ^= reduced[bit];
    }
    return false;
  };
  for (const uint8_t vector : wanted) {
    if (!take(vector)) return {1, 2, 4, 8, 16, 32, 64, 128};
  }
  for (uint32_t bit = 0; bit < 8; ++bit) take(static_cast<uint8_t>(1u << bit));
  std::array<uint8_t, 8> rows{};  // of the matrix with those columns
  for (uint32_t r = 0; r < 8; ++r) {
    for (uint32_t c = 0; c < 8; ++c) {
      rows[r] = static_cast<uint8_t>(rows[r] | (columns[c] >> r & 1) << c);
    }
  }
  std::array<uint8_t, 8> inverse = {1, 2, 4, 8, 16, 32, 64, 128};
  for (uint32_t c = 0; c < 8; ++c) {
    uint32_t pivot = c;
    while ((rows[pivot] >> c & 1) == 0) ++pivot;
    std::swap(rows[c], rows[pivot]);
    std::swap(inverse[c], inverse[pivot]);
    for (uint32_t r = 0; r < 8; ++r) {
      if (r == c || (rows[r] >> c & 1) == 0) continue;
      rows[r] ^= rows[c];
      inverse[r] ^= inverse[c];
    }
  }
  return inverse;
}

uint8_t Map(const std::array<uint8_t, 8>& rows, uint8_t value) {
  uint8_t image = 0;
  for (uint32_t bit = 0; bit < 8; ++bit) {
    image = static_cast<uint8_t>(image | Parity(rows[bit] & value) << bit);
  }
  return image;
}

}  // namespace

absl::StatusOr<XtGpuTables> MakeXtGpuTables(const XtCode& code) {
  const std::vector<StateBit> state = StateBits(code);
  if (!KernelsTake(code, state.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("XT code of ", code.bits, " bits with a state of ", state.size(),
                     " bits: the GPU encoder is not made for its window"));
  }
  XtGpuTables tables = {.bits = code.bits, .phase_count = code.phase_count};
  const size_t row_count = (size_t{1} << state.size()) / 16;
  tables.row_hash.resize(code.phase_count * row_count);
  tables.level.resize(size_t{code.phase_count} * 256);
  for (uint32_t p = 0; p < code.phase_count; ++p) {
    // A state after a step: the bits of age a in it were of age a - 1 in the step's window.
    const auto after = [&](size_t i) { return code.Column(p, state[i].age - 1, state[i].bit); };
    const std::array<uint8_t, 8> basis = BasisFor({after(4), after(5), after(6)});
    const auto hash_of = [&](uint32_t value, size_t first) {
      uint8_t hash = 0;
      for (size_t i = 0; value >> i != 0; ++i) {
        if ((value >> i & 1) != 0) hash ^= after(first + i);
      }
      return Map(basis, hash);
    };
    for (uint32_t lane = 0; lane < 16; ++lane) tables.lane_hash[p][lane] = hash_of(lane, 0);
    for (uint32_t row = 0; row < row_count; ++row) {
      tables.row_hash[p * row_count + row] = hash_of(row, 4);
    }
    // What a step drops was the oldest of its window.
    std::vector<uint8_t> dropped;
    for (const StateBit& s : state) {
      if (s.age == code.Depth(s.bit)) dropped.push_back(code.Column(p, s.age, s.bit));
    }
    for (uint32_t d = 0; d < 1u << code.bits; ++d) {
      uint8_t hash = 0;
      for (uint32_t i = 0; i < dropped.size(); ++i) {
        if ((d >> i & 1) != 0) hash ^= dropped[i];
      }
      tables.dropped_hash[p][d] = Map(basis, hash);
    }
    for (uint32_t age = 0; age < kXtGpuAgesMax; ++age) {
      for (uint32_t bit = 0; bit < code.bits; ++bit) {
        tables.column[p][age][bit] = Map(basis, code.Column(p, age, bit));
      }
    }
    for (uint32_t hash = 0; hash < 256; ++hash) {
      tables.level[p * 256 + Map(basis, static_cast<uint8_t>(hash))] =
          static_cast<float>(code.Level(p, static_cast<uint8_t>(hash)));
    }
  }
  return tables;
}

}  // namespace hearth
