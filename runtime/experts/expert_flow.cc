#include "runtime/experts/expert_flow.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/spin_wait.h"

namespace hearth {
namespace {

// What one band costs beside its rows: reading and decoding its weights, in units of one row's
// work.
constexpr uint32_t kBandCostRows = 2;

// A piece is this part of one worker's even share of what is left of the phase.
constexpr uint64_t kPiecesPerShare = 3;

// Looks at a late expert before a worker sleeps until it comes: a few microseconds.
constexpr uint32_t kArrivalSpins = 200;

uint64_t BandCost(const FlowJob& job) { return job.rows + kBandCostRows; }

}  // namespace

ExpertFlow::ExpertFlow(uint32_t jobs_max, uint32_t worker_count, uint32_t node_count)
    : worker_count_(worker_count),
      states_(jobs_max),
      lines_(std::make_unique<Line[]>(std::max(node_count, 1u))),
      line_count_(std::max(node_count, 1u)),
      late_order_(jobs_max) {
  for (uint32_t i = 0; i < line_count_; ++i) {
    lines_[i].jobs.reserve(jobs_max);
    lines_[i].jobs_unready.reserve(jobs_max);
    lines_[i].cost_before.reserve(size_t{jobs_max} + 1);
  }
}

void ExpertFlow::Begin(std::span<const FlowJob> jobs, const FlowShape& shape) {
  HEARTH_CHECK(jobs.size() <= states_.size());
  jobs_ = jobs;
  shape_ = shape;
  late_span_ = 1 + shape.gate_up_band_count + shape.down_band_count;
  late_count_ = 0;
  arrived_count_.store(0, std::memory_order_relaxed);
  late_cursor_.store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < line_count_; ++i) {
    lines_[i].jobs.clear();
    lines_[i].jobs_unready.clear();
    lines_[i].cost_before.assign(1, 0);
  }
  for (uint32_t j = 0; j < jobs.size(); ++j) {
    states_[j].stage.store(jobs[j].prepared ? kPrepared : kWaiting, std::memory_order_relaxed);
    states_[j].gate_up_bands_left.store(shape.gate_up_band_count, std::memory_order_relaxed);
    states_[j].down_bands_left.store(shape.down_band_count, std::memory_order_relaxed);
    if (jobs[j].absent) continue;
    if (jobs[j].late) {
      late_order_[late_count_++].store(kNotArrived, std::memory_order_relaxed);
      continue;
    }
    Line& line = lines_[jobs[j].node % line_count_];
    line.jobs.push_back(j);
    if (!jobs[j].prepared) line.jobs_unready.push_back(j);
    line.cost_before.push_back(line.cost_before.back() + BandCost(jobs[j]));
  }
  for (uint32_t i = 0; i < line_count_; ++i) {
    Line& line = lines_[i];
    const uint64_t prepare = line.jobs_unready.size();
    const uint64_t gate_up = prepare + line.jobs.size() * uint64_t{shape.gate_up_band_count};
    const uint64_t down = gate_up + line.jobs.size() * uint64_t{shape.down_band_count};
    line.segments[0] = {.begin = 0, .end = prepare, .band_count = 1};
    line.segments[1] = {.begin = prepare,
                        .end = gate_up,
                        .band_count = shape.gate_up_band_count,
                        .piece_bands_min = shape.gate_up_piece_bands_min};
    line.segments[2] = {.begin = gate_up,
                        .end = down,
                        .band_count = shape.down_band_count,
                        .piece_bands_min = shape.down_piece_bands_min};
    line.cursor.store(0, std::memory_order_relaxed);
  }
}

// The piece at position `at`, and how far it reaches.
uint32_t ExpertFlow::PieceAt(const Line& line, uint64_t at, FlowPiece* piece) const {
  int phase = 0;
  while (at >= line.segments[phase].end) ++phase;
  piece->phase = static_cast<FlowPhase>(phase);
  const Segment& segment = line.segments[phase];
  const uint64_t offset = at - segment.begin;
  if (piece->phase == FlowPhase::kPrepare) {
    *piece = {.job = line.jobs_unready[offset], .band_begin = 0, .band_end = 1};
    return 1;
  }
  const uint64_t index = offset / segment.band_count;
  const auto band = static_cast<uint32_t>(offset % segment.band_count);
  const uint64_t step = line.cost_before[index + 1] - line.cost_before[index];
  const uint64_t left =
      (line.cost_before.back() - line.cost_before[index]) * segment.band_count - band * step;
  const uint64_t bands =
      std::max<uint64_t>(left / (kPiecesPerShare * worker_count_ * step), segment.piece_bands_min);
  piece->job = line.jobs[index];
  piece->band_begin = band;
  piece->band_end = static_cast<uint32_t>(std::min<uint64_t>(band + bands, segment.band_count));
  return piece->band_end - band;
}

bool ExpertFlow::Take(Line& line, FlowPiece* piece) {
  uint64_t at = line.cursor.load(std::memory_order_relaxed);
  while (at < line.segments[2].end) {
    const uint32_t count = PieceAt(line, at, piece);
    if (line.cursor.compare_exchange_weak(at, at + count, std::memory_order_relaxed)) return true;
  }
  return false;
}

void ExpertFlow::Arrive(uint32_t job, bool usable) {
  const uint32_t i = arrived_count_.fetch_add(1, std::memory_order_relaxed);
  HEARTH_CHECK(i < late_count_);
  // The layer, and the flow with it, may be over once this is stored: only the address is used
  // then.
  std::atomic<uint32_t>& order = late_order_[i];
  order.store(usable ? job : job | kUnusable, std::memory_order_release);
  order.notify_all();
}

// As PieceAt. While more experts wait than there are workers each is one worker's; otherwise they
// share it.
uint32_t ExpertFlow::LatePieceAt(uint64_t at, uint32_t job, FlowPiece* piece) const {
  const auto offset = static_cast<uint32_t>(at % late_span_);
  *piece = {.job = job, .band_begin = 0, .band_end = 1};
  if (offset == 0) return 1;
  const bool gate_up = offset - 1 < shape_.gate_up_band_count;
  const uint32_t bands = gate_up ? shape_.gate_up_band_count : shape_.down_band_count;
  const uint32_t bands_min = gate_up ? shape_.gate_up_piece_bands_min : shape_.down_piece_bands_min;
  const uint64_t waiting = arrived_count_.load(std::memory_order_relaxed) - at / late_span_;
  const uint32_t pieces = waiting > worker_count_ ? 1 : worker_count_;
  piece->phase = gate_up ? FlowPhase::kGateUp : FlowPhase::kDown;
  piece->band_begin = offset - 1 - (gate_up ? 0 : shape_.gate_up_band_count);
  piece->band_end =
      std::min(bands, piece->band_begin + std::max((bands + pieces - 1) / pieces, bands_min));
  return piece->band_end - piece->band_begin;
}

bool ExpertFlow::TakeLate(FlowPiece* piece) {
  uint64_t at = late_cursor_.load(std::memory_order_relaxed);
  while (at < uint64_t{late_count_} * late_span_) {
    const std::atomic<uint32_t>& order = late_order_[at / late_span_];
    uint32_t job = order.load(std::memory_order_acquire);
    for (uint32_t spins = 0; job == kNotArrived && spins < kArrivalSpins; ++spins) {
      SpinWait().Pause();
      job = order.load(std::memory_order_acquire);
    }
    if (job == kNotArrived) {
      order.wait(kNotArrived, std::memory_order_acquire);
      at = late_cursor_.load(std::memory_order_relaxed);
      continue;
    }
    if ((job & kUnusable) != 0) {
      late_cursor_.compare_exchange_weak(at, (at / late_span_ + 1) * late_span_,
                                         std::memory_order_relaxed);
      at = late_cursor_.load(std::memory_order_relaxed);
      continue;
    }
    const uint32_t count = LatePieceAt(at, job, piece);
    if (!late_cursor_.compare_exchange_weak(at, at + count, std::memory_order_relaxed)) continue;
    if (piece->phase != FlowPhase::kPrepare || !jobs_[job].prepared) return true;
    at += count;  // nothing to prepare
  }
  return false;
}

// Ordering: acquire here, release in Finish() and PublishHidden().
void ExpertFlow::AwaitStage(const FlowPiece& piece) const {
  const uint32_t needed = static_cast<uint32_t>(piece.phase);
  const std::atomic<uint32_t>& stage = states_[piece.job].stage;
  for (SpinWait wait; stage.load(std::memory_order_acquire) < needed;) wait.Pause();
}

bool ExpertFlow::Next(uint32_t node, FlowPiece* piece) {
  for (uint32_t i = 0; i < line_count_; ++i) {
    if (!Take(lines_[(node + i) % line_count_], piece)) continue;
    AwaitStage(*piece);
    return true;
  }
  if (late_count_ == 0 || !TakeLate(piece)) return false;
  AwaitStage(*piece);
  return true;
}

FlowEvent ExpertFlow::Finish(const FlowPiece& piece) {
  JobState& state = states_[piece.job];
  const uint32_t bands = piece.band_end - piece.band_begin;
  switch (piece.phase) {
    case FlowPhase::kPrepare:
      state.stage.store(kPrepared, std::memory_order_release);
      return FlowEvent::kNothing;
    case FlowPhase::kGateUp:
      return state.gate_up_bands_left.fetch_sub(bands, std::memory_order_acq_rel) == bands
                 ? FlowEvent::kHiddenComplete
                 : FlowEvent::kNothing;
    case FlowPhase::kDown:
      break;
  }
  return state.down_bands_left.fetch_sub(bands, std::memory_order_acq_rel) == bands
             ? FlowEvent::kExpertDone
             : FlowEvent::kNothing;
}

void ExpertFlow::PublishHidden(uint32_t job) {
  states_[job].stage.store(kHiddenReady, std::memory_order_release);
}

}  // namespace hearth
