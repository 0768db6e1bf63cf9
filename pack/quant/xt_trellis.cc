#include "pack/quant/xt_trellis.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "pack/quant/xt_trellis_step.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint32_t kShortTurnsMax = 2;
constexpr uint32_t kShortWrapSteps = 24;  // the turns make up for a poor guess
constexpr uint32_t kMetricAlign = 32;     // values of one cache line

// The least element of each coset of the span of hash_of_lane[0 .. lanes).
std::vector<uint8_t> CosetHeads(const XtTrellis::Phase& phase, uint32_t lanes) {
  std::vector<uint8_t> heads;
  std::array<bool, 256> seen{};
  for (uint32_t hash = 0; hash < 256; ++hash) {
    if (seen[hash]) continue;
    heads.push_back(static_cast<uint8_t>(hash));
    for (uint32_t lane = 0; lane < lanes; ++lane) seen[hash ^ phase.hash_of_lane[lane]] = true;
  }
  return heads;
}

// Spreads the low bits of `value` over the set bits of `mask`, lowest first.
uint32_t Deposit(uint32_t value, uint32_t mask) {
  uint32_t out = 0;
  for (; mask != 0; mask &= mask - 1, value >>= 1) {
    if ((value & 1) != 0) out |= mask & -mask;
  }
  return out;
}

using StepFn = uint16_t (*)(const XtStepArgs&);

StepFn StepOf(XtIsa isa) {
  return isa == XtIsa::kAvx512 ? XtStepAvx512 : (isa == XtIsa::kAvx2 ? XtStepAvx2 : XtStepScalar);
}

// Of one step, by hash. Only differences between levels count, so the least error is taken off.
void FillErrors(const XtTrellis& trellis, const XtTrellis::Phase& phase, float target, float units,
                std::span<uint16_t, 256> errors) {
  std::array<float, 256> squares;
  float least = INFINITY;
  for (uint32_t h = 0; h < 256; ++h) {
    const float difference = target - phase.level[h];
    squares[h] = difference * difference;
    least = std::min(least, squares[h]);
  }
  const auto cap = static_cast<float>(kXtErrorMax >> trellis.code.bits);
  for (uint32_t h = 0; h < 256; ++h) {
    const float scaled = std::min((squares[h] - least) * units + 0.5f, cap);
    errors[h] = static_cast<uint16_t>(static_cast<int32_t>(scaled) << trellis.code.bits);
  }
}

uint16_t* Aligned(std::vector<uint16_t>& metrics) {
  const auto address = reinterpret_cast<uintptr_t>(metrics.data());
  return metrics.data() + (64 - address % 64) % 64 / sizeof(uint16_t);
}

const uint16_t* Aligned(const std::vector<uint16_t>& metrics) {
  return Aligned(const_cast<std::vector<uint16_t>&>(metrics));
}

}  // namespace

bool XtIsaRuns(XtIsa isa) {
  switch (isa) {
    case XtIsa::kScalar:
      return true;
    case XtIsa::kAvx2:
      return __builtin_cpu_supports("avx2") != 0;
    case XtIsa::kAvx512:
      return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  }
  return false;
}

XtIsa BestXtIsa() {
  if (XtIsaRuns(XtIsa::kAvx512)) return XtIsa::kAvx512;
  return XtIsaRuns(XtIsa::kAvx2) ? XtIsa::kAvx2 : XtIsa::kScalar;
}

XtTrellis::XtTrellis(const XtCode& xt_code) : code(xt_code) {
  std::array<uint32_t, 4> depths{};
  for (uint32_t bit = 0; bit < code.bits; ++bit) {
    depths[bit] = code.Depth(bit);
    depth = std::max(depth, depths[bit]);
  }
  uint32_t dropped_mask = 0;
  for (uint32_t age = 1; age <= depth; ++age) {
    for (uint32_t bit = 0; bit < code.bits; ++bit) {
      if (age > depths[bit]) continue;
      if (age == depths[bit]) dropped_mask |= 1u << state_bits.size();
      state_bits.push_back({.age = age, .bit = bit});
    }
  }
  const uint32_t kept_mask = (state_count() - 1) & ~dropped_mask;
  HEARTH_CHECK((kept_mask & (kXtLanesMax - 1)) == kXtLanesMax - 1);  // groups of a vector adjoin
  HEARTH_CHECK(state_bits.size() <= 24);
  for (uint32_t i = 0, kept = 0; i < state_bits.size(); ++i) {
    if ((kept_mask >> i & 1) == 0) continue;
    if (kept_bits.empty() || kept_bits.back().shift != i - kept) kept_bits.push_back({i - kept, 0});
    kept_bits.back().mask |= 1u << kept++;
  }
  for (uint32_t high = 0; high < group_count() / 16; ++high) {
    group_offset.push_back(Deposit(high * 16, kept_mask));
  }
  for (uint32_t d = 0; d < branch_count(); ++d) dropped_offset[d] = Deposit(d, dropped_mask);

  // A group with a dropped symbol is the state before, one age younger than at the step's symbol.
  for (uint32_t p = 0; p < code.phase_count; ++p) {
    Phase phase;
    for (uint32_t i = 0; i < state_bits.size(); ++i) {
      const uint8_t column = code.Column(p, state_bits[i].age, state_bits[i].bit);
      for (uint32_t byte = 0; byte < 256; ++byte) {
        if ((byte >> i % 8 & 1) != 0) phase.hash_of_state[i / 8][byte] ^= column;
      }
    }
    const auto hash_of_state = [&phase](uint32_t state) {
      return static_cast<uint8_t>(phase.hash_of_state[0][state & 255] ^
                                  phase.hash_of_state[1][state >> 8 & 255] ^
                                  phase.hash_of_state[2][state >> 16]);
    };
    for (uint32_t c = 0; c < branch_count(); ++c) {
      for (uint32_t bit = 0; bit < code.bits; ++bit) {
        if ((c >> bit & 1) != 0) phase.hash_of_symbol[c] ^= code.Column(p, 0, bit);
      }
      phase.hash_of_dropped[c] = hash_of_state(dropped_offset[c]);
    }
    for (uint32_t lane = 0; lane < kXtLanesMax; ++lane) {
      phase.hash_of_lane[lane] = hash_of_state(Deposit(lane, kept_mask));
    }
    for (const uint32_t offset : group_offset) {
      phase.hash_of_high.push_back(hash_of_state(offset));
    }
    phase.coset_heads = CosetHeads(phase, kXtLanesMax);
    phase.half_coset_heads = CosetHeads(phase, kXtLanesMax / 2);
    for (uint32_t h = 0; h < 256; ++h) {
      phase.level[h] = static_cast<float>(code.Level(p, static_cast<uint8_t>(h)));
    }
    phases.push_back(std::move(phase));
  }
  units_per_square_level = XtUnitsPerSquareLevel(code);
}

uint32_t XtTrellis::StateAt(std::span<const uint8_t> symbols, uint32_t at) const {
  const auto count = static_cast<uint32_t>(symbols.size());
  uint32_t state = 0;
  for (uint32_t i = 0; i < state_bits.size(); ++i) {
    const uint32_t back = state_bits[i].age % count;
    const uint32_t symbol = symbols[(at + count - back) % count];
    state |= (symbol >> state_bits[i].bit & 1) << i;
  }
  return state;
}

void XtTrellis::Levels(std::span<const uint8_t> symbols, std::span<float> levels) const {
  HEARTH_CHECK(symbols.size() == levels.size());
  uint32_t state = StateAt(symbols, 0);
  for (uint32_t t = 0; t < symbols.size(); ++t) {
    const Phase& phase = phases[t % code.phase_count];
    levels[t] =
        phase.level[phase.hash_of_symbol[symbols[t]] ^ phase.hash_of_state[0][state & 255] ^
                    phase.hash_of_state[1][state >> 8 & 255] ^ phase.hash_of_state[2][state >> 16]];
    state = Successor(state, symbols[t]);
  }
}

uint64_t XtErrorUnits(const XtTrellis& trellis, float target, float level) {
  const float difference = target - level;
  return static_cast<uint64_t>(difference * difference * trellis.units_per_square_level + 0.5f);
}

XtStreamEncoder::XtStreamEncoder(const XtTrellis& trellis, uint32_t steps_max, XtIsa isa)
    : trellis_(trellis), isa_(isa) {
  HEARTH_CHECK(XtIsaRuns(isa));
  const uint32_t run_max = std::max(steps_max, 2 * kXtWrapSteps);
  for (std::vector<uint16_t>& m : metrics_) m.resize(trellis.state_count() + kMetricAlign);
  back_.resize(size_t{run_max} * trellis.back_word_count());
  run_symbols_.resize(run_max);
  trial_.resize(steps_max);
  trial_levels_.resize(steps_max);
}

void XtStreamEncoder::Forward(std::span<const float> targets, const Run& run, float units) {
  const StepFn step = StepOf(isa_);
  alignas(64) std::array<uint16_t, 256> errors;
  for (uint32_t i = 0; i < run.steps; ++i) {
    const uint32_t at = (run.begin + i) % static_cast<uint32_t>(targets.size());
    const XtTrellis::Phase& phase = trellis_.phases[at % trellis_.code.phase_count];
    FillErrors(trellis_, phase, targets[at], units, errors);
    floor_ = step({.trellis = &trellis_,
                   .phase = &phase,
                   .errors = errors.data(),
                   .floor = floor_,
                   .from = Aligned(metrics_[newest_]),
                   .to = Aligned(metrics_[newest_ ^ 1]),
                   .back = back_.data() + size_t{i} * trellis_.back_word_count()});
    newest_ ^= 1;
  }
}

// The state before the run's first step, on the way that ends in `state`.
uint32_t XtStreamEncoder::TraceBack(const Run& run, uint32_t state,
                                    std::span<uint8_t> run_symbols) const {
  const uint32_t bits = trellis_.code.bits;
  const uint32_t mask = trellis_.branch_count() - 1;
  for (uint32_t i = run.steps; i-- > 0;) {
    const uint32_t symbol = state & mask;
    const uint32_t group = state >> bits;
    const uint16_t word =
        back_[size_t{i} * trellis_.back_word_count() +
              size_t{symbol / kXtFieldsPerBackWord} * trellis_.group_count() + group];
    run_symbols[i] = static_cast<uint8_t>(symbol);
    state = trellis_.Predecessor(group, word >> (bits * (symbol % kXtFieldsPerBackWord)) & mask);
  }
  return state;
}

uint32_t XtStreamEncoder::BestState() const {
  const uint16_t* metrics = Aligned(metrics_[newest_]);
  for (uint32_t s = 0; s < trellis_.state_count(); ++s) {
    if (metrics[s] >> trellis_.code.bits == floor_ >> trellis_.code.bits) return s;
  }
  HEARTH_CHECK(false);
}

// A free run around the wrap, from well before it to well after it.
uint32_t XtStreamEncoder::FindWrapState(std::span<const float> targets) {
  const auto count = static_cast<uint32_t>(targets.size());
  std::fill(metrics_[newest_].begin(), metrics_[newest_].end(), uint16_t{0});
  floor_ = 0;
  const uint32_t side = count < kXtShortSteps ? kShortWrapSteps : std::min(count, kXtWrapSteps);
  const uint32_t turns = (side + count - 1) / count;
  const Run run = {.begin = turns * count - side, .steps = 2 * side};
  Forward(targets, run, trellis_.units_per_square_level);
  (void)TraceBack(run, BestState(), run_symbols_);
  // A window longer than the circle holds symbols twice: only what repeats can be a state of it.
  const uint32_t repeat = std::min(count, side);
  return trellis_.StateAt(std::span(run_symbols_).subspan(side - repeat, repeat), 0);
}

// Once around from step `begin`, from `state` back to it.
void XtStreamEncoder::EncodeFrom(std::span<const float> targets, uint32_t begin, uint32_t state,
                                 std::span<uint8_t> symbols) {
  const Run run = {.begin = begin, .steps = static_cast<uint32_t>(targets.size())};
  // Coarser units cannot saturate in the end: with none, every way costs nothing.
  for (float units = trellis_.units_per_square_level;; units = units > 1e-3f ? units / 4 : 0) {
    std::fill(metrics_[newest_].begin(), metrics_[newest_].end(), kXtMetricMax);
    Aligned(metrics_[newest_])[state] = 0;
    floor_ = 0;
    Forward(targets, run, units);
    if (TraceBack(run, state, run_symbols_) == state) break;
    HEARTH_CHECK(units > 0);
  }
  for (uint32_t i = 0; i < run.steps; ++i) symbols[(begin + i) % run.steps] = run_symbols_[i];
}

XtStreamResult XtStreamEncoder::Measure(std::span<const float> targets,
                                        std::span<const float> levels) const {
  XtStreamResult result;
  for (size_t t = 0; t < targets.size(); ++t) {
    const double difference = double{targets[t]} - levels[t];
    result.squared_error += difference * difference;
    result.error_units += XtErrorUnits(trellis_, targets[t], levels[t]);
  }
  return result;
}

XtStreamResult XtStreamEncoder::Encode(std::span<const float> targets, std::span<uint8_t> symbols,
                                       std::span<float> levels) {
  const auto count = static_cast<uint32_t>(targets.size());
  HEARTH_CHECK(count > 0 && count % 8 == 0 && count <= trial_.size());
  HEARTH_CHECK(symbols.size() == count && levels.size() == count);
  EncodeFrom(targets, 0, FindWrapState(targets), symbols);
  trellis_.Levels(symbols, levels);
  XtStreamResult best = Measure(targets, levels);
  if (count >= kXtShortSteps) return best;
  // Hold the state opposite to the last one held, and free the rest: an error that the first guess
  // of the wrap forced can move away.
  const std::span<uint8_t> trial = std::span(trial_).first(count);
  const std::span<float> trial_levels = std::span(trial_levels_).first(count);
  for (uint32_t turn = 1; turn <= kShortTurnsMax; ++turn) {
    const uint32_t begin = turn % 2 == 1 ? count / 2 : 0;
    EncodeFrom(targets, begin, trellis_.StateAt(symbols, begin), trial);
    trellis_.Levels(trial, trial_levels);
    const XtStreamResult result = Measure(targets, trial_levels);
    if (result.squared_error >= best.squared_error) break;
    best = result;
    std::copy(trial.begin(), trial.end(), symbols.begin());
    std::copy(trial_levels.begin(), trial_levels.end(), levels.begin());
  }
  return best;
}

}  // namespace hearth
