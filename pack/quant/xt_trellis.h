// The trellis of an XT code (pack/format/xt_code.h) and its encoder of one stream: of all circular
// sequences of symbols, one whose levels lie nearly as close as they can to given targets.
//
// A state is what the window holds besides the newest symbol: for each bit of a symbol, the bits of
// the ages 1..depth of that bit, where depth is the greatest age on which a level of any phase
// depends. In a state's index the younger symbols stand lower, each with its bits in order. A step
// appends a symbol c and drops the oldest bits d: state' = group << bits | c, and the group with d
// names the state before.
//
// The search is Viterbi's in integers, so that every instruction set chooses the same symbols:
//   error of a level  e = (target - level)^2 in fp32; in units: min(round((e - least e of the step)
//                     * units_per_square_level), kXtErrorMax / 2^bits), times 2^bits
//   metric            u16; its low `bits` bits hold d, so that one minimum finds the survivor and
//                     its way back, ties to the least d; at most kXtMetricMax; each step subtracts
//                     the least metric of the step before. Two maxima below 2^16 in all spare GPUs
//                     a saturating addition, which they lack.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "pack/format/xt_code.h"
#include "pack/format/xt_search.h"

namespace hearth {

enum class XtIsa { kScalar, kAvx2, kAvx512 };
bool XtIsaRuns(XtIsa isa);  // on this processor
XtIsa BestXtIsa();

inline constexpr uint32_t kXtBranchesMax = 16;
inline constexpr uint32_t kXtLanesMax = 32;  // groups that a kernel takes at once
inline constexpr uint32_t kXtFieldsPerBackWord = 4;

// Everything about a code that the search needs; immutable.
struct XtTrellis {
  explicit XtTrellis(const XtCode& xt_code);

  // A position of the state's index: which bit of the symbol that many steps ago.
  struct StateBit {
    uint32_t age = 0;
    uint32_t bit = 0;
  };
  // Neighbouring bits of a state that a step keeps, and where a group has them.
  struct KeptBits {
    uint32_t shift = 0;
    uint32_t mask = 0;
  };
  struct Phase {
    std::array<uint8_t, kXtBranchesMax> hash_of_symbol{};
    std::array<uint8_t, kXtBranchesMax> hash_of_dropped{};
    std::array<uint8_t, kXtLanesMax> hash_of_lane{};          // of the low 5 bits of a group
    std::array<std::array<uint8_t, 256>, 3> hash_of_state{};  // of each byte of a state
    std::vector<uint8_t> hash_of_high;                        // of group / 16 (its low bits zero)
    std::vector<uint8_t> coset_heads;       // one hash of each coset of the span of all 5 lane bits
    std::vector<uint8_t> half_coset_heads;  // of the low 4
    std::array<float, 256> level{};         // by hash
  };

  uint32_t branch_count() const { return 1u << code.bits; }
  uint32_t state_count() const { return 1u << state_bits.size(); }
  uint32_t group_count() const { return state_count() >> code.bits; }
  uint32_t back_word_count() const {  // u16 words of one step: [symbol / 4][group]
    return branch_count() / kXtFieldsPerBackWord * group_count();
  }
  uint32_t Predecessor(uint32_t group, uint32_t dropped) const {
    return group_offset[group / 16] + group % 16 + dropped_offset[dropped];
  }
  uint32_t Successor(uint32_t state, uint32_t symbol) const {
    uint32_t group = 0;
    for (const KeptBits& kept : kept_bits) group |= state >> kept.shift & kept.mask;
    return group << code.bits | symbol;
  }
  // The state before step `at` of a circular stream.
  uint32_t StateAt(std::span<const uint8_t> symbols, uint32_t at) const;
  // What a circular stream decodes to.
  void Levels(std::span<const uint8_t> symbols, std::span<float> levels) const;

  const XtCode& code;
  std::vector<StateBit> state_bits;
  uint32_t depth = 0;                  // greatest age of a state bit
  std::vector<uint32_t> group_offset;  // [group / 16]: state of (group, dropped 0)
  std::array<uint32_t, kXtBranchesMax> dropped_offset{};
  std::vector<KeptBits> kept_bits;
  std::vector<Phase> phases;
  float units_per_square_level = 1;
};

struct XtStreamResult {
  double squared_error = 0;  // sum of (target - level)^2
  uint64_t error_units = 0;  // sum of round((target - level)^2 * units_per_square_level)
};

// Rounded as the search rounds it, without its cap.
uint64_t XtErrorUnits(const XtTrellis& trellis, float target, float level);

// Encodes streams one after the other; holds the memory for it. Not thread-safe.
class XtStreamEncoder {
 public:
  // `trellis` outlives the encoder. Streams of at most `steps_max` symbols.
  XtStreamEncoder(const XtTrellis& trellis, uint32_t steps_max, XtIsa isa);

  // `targets` in level units, finite; a multiple of 8. As many symbols, and what they decode to.
  XtStreamResult Encode(std::span<const float> targets, std::span<uint8_t> symbols,
                        std::span<float> levels);

 private:
  struct Run {  // part of the circle: `steps` steps from step `begin`
    uint32_t begin = 0;
    uint32_t steps = 0;
  };
  void Forward(std::span<const float> targets, const Run& run, float units);
  uint32_t TraceBack(const Run& run, uint32_t state, std::span<uint8_t> run_symbols) const;
  uint32_t BestState() const;
  uint32_t FindWrapState(std::span<const float> targets);
  void EncodeFrom(std::span<const float> targets, uint32_t begin, uint32_t state,
                  std::span<uint8_t> symbols);
  XtStreamResult Measure(std::span<const float> targets, std::span<const float> levels) const;

  const XtTrellis& trellis_;
  const XtIsa isa_;
  std::vector<uint16_t> metrics_[2];  // by state, aligned within; see Metrics()
  std::vector<uint16_t> back_;        // [step][back_word_count]
  std::vector<uint8_t> run_symbols_;
  std::vector<uint8_t> trial_;
  std::vector<float> trial_levels_;
  uint32_t newest_ = 0;  // of metrics_
  uint16_t floor_ = 0;   // least metric of the newest
};

}  // namespace hearth
