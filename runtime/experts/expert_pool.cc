#include "runtime/experts/expert_pool.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// The least of a matrix that a worker takes at once: a microsecond or two of memory traffic,
// against a tenth for taking it.
constexpr uint64_t kPieceBytesMin = 12 * 1024;

uint32_t PieceBandsMin(uint64_t band_bytes) {
  return static_cast<uint32_t>((kPieceBytesMin + band_bytes - 1) / band_bytes);
}

// So many rows are rotated by the caller alone: they take a few microseconds.
constexpr uint32_t kRotatedAlone = 8;

// XT streams run over the bands: a piece begins with what comes before it in each block.
constexpr uint32_t kXtPieceBandsMin = 4;

FlowShape ShapeOf(const ExpertLayout& layout) {
  const auto band_bytes = [&](Projection p) {
    return layout.projection_bytes(p) / BandCount(layout.rows(p));
  };
  const uint32_t bands_min = layout.format == ExpertFormat::kXt ? kXtPieceBandsMin : 1;
  const uint64_t gate_up_bytes = band_bytes(Projection::kGate) + band_bytes(Projection::kUp);
  return {
      .gate_up_band_count = BandCount(layout.width),
      .down_band_count = BandCount(layout.hidden),
      .gate_up_piece_bands_min = std::max(PieceBandsMin(gate_up_bytes), bands_min),
      .down_piece_bands_min = std::max(PieceBandsMin(band_bytes(Projection::kDown)), bands_min)};
}

std::string_view NameOf(FlowPhase phase) {
  switch (phase) {
    case FlowPhase::kPrepare:
      return "gather rows";
    case FlowPhase::kGateUp:
      return "gate, up";
    case FlowPhase::kDown:
      return "down";
  }
  HEARTH_CHECK(false);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertPool>> ExpertPool::Create(const Deps& deps,
                                                               const Options& options) {
  std::unique_ptr<ExpertPool> pool(new ExpertPool(deps, options));
  HEARTH_RETURN_IF_ERROR(pool->Allocate());
  return pool;
}

void ExpertPool::Reserve(std::span<const ExpertLayout> layouts, uint32_t worker_count,
                         const Options& options, ScratchArena& arena, Buffers& b) {
  const uint32_t hidden = layouts[0].hidden;
  const uint32_t width = layouts[0].width;
  const uint64_t entries = uint64_t{options.rows_max} * options.ranks;
  const auto reserve_quantized = [&](QuantizedSpans& spans, uint32_t cols) {
    const uint64_t blocks = ActivationBlocks(cols);
    arena.Reserve(spans.q, entries * blocks * kActivationBlockValues);
    arena.Reserve(spans.scale, entries * blocks);
    arena.Reserve(spans.sum16, entries * blocks * 2);
  };
  reserve_quantized(b.gathered_q, hidden);
  reserve_quantized(b.hidden_q, width);
  arena.Reserve(b.gathered_x, entries * hidden);
  arena.Reserve(b.h, entries * width);
  arena.Reserve(b.y, uint64_t{worker_count} * options.rows_max * hidden);
  const bool has_xt = std::ranges::any_of(
      layouts, [](const ExpertLayout& layout) { return layout.format == ExpertFormat::kXt; });
  if (!has_xt) return;
  const auto reserve_xt = [&](XtSpans& spans, uint64_t rows, uint32_t cols) {
    arena.Reserve(spans.q, rows * cols);
    arena.Reserve(spans.scale, rows);
    arena.Reserve(spans.sum, rows);
  };
  reserve_xt(b.input_xt, options.rows_max, hidden);
  reserve_xt(b.gathered_xt, entries, hidden);
  reserve_xt(b.hidden_xt, entries, width);
  arena.Reserve(b.rotation, uint64_t{worker_count} * std::max(hidden, width));
}

uint64_t ExpertPool::BufferBytes(std::span<const ExpertLayout> layouts, uint32_t worker_count,
                                 const Options& options) {
  ScratchArena arena;
  Buffers buffers;
  Reserve(layouts, worker_count, options, arena, buffers);
  return arena.reserved_bytes();
}

absl::Status ExpertPool::Allocate() {
  hidden_ = layouts_[0].hidden;
  width_ = layouts_[0].width;
  Reserve(layouts_, deps_.team.worker_count(), options_, scratch_, buffers_);
  HEARTH_RETURN_IF_ERROR(Annotate(scratch_.Allocate(), "buffers of the expert pool"));
  const uint64_t entries = uint64_t{options_.rows_max} * options_.ranks;
  const uint64_t jobs_max = std::min<uint64_t>(entries, deps_.expert_count);
  jobs_.reserve(jobs_max);
  flow_jobs_.reserve(jobs_max);
  worker_times_.resize(deps_.team.worker_count());
  flow_ = std::make_unique<ExpertFlow>(static_cast<uint32_t>(jobs_max), deps_.team.worker_count(),
                                       deps_.team.node_count());
  return absl::OkStatus();
}

const std::byte*& ExpertPool::DecodedBlob(ExpertKey key) {
  return decoded_of_[size_t{key.layer.value} * deps_.expert_count + key.expert.value];
}

absl::Status ExpertPool::Decode(LayerId layer, const WindowPlan& plan,
                                absl::FunctionRef<absl::StatusOr<const std::byte*>(size_t)> stored,
                                absl::FunctionRef<void(size_t)> done,
                                std::span<ExpertWeights> weights) {
  if (decoded_of_.empty()) {
    decoded_of_.resize(layouts_.size() * deps_.expert_count);
    HEARTH_ASSIGN_OR_RETURN(decoded_, AnonymousMapping::Create(options_.decoded_bytes_max));
  }
  const ExpertLayout f32{.format = ExpertFormat::kF32, .hidden = hidden_, .width = width_};
  const uint64_t bytes = AlignUp(f32.blob_bytes(), 64);
  if (plan.experts.size() * bytes > decoded_.data().size()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "reference arithmetic: one layer's ", plan.experts.size(),
        " experts in fp32 do not fit its budget of ", FormatBytes(options_.decoded_bytes_max)));
  }
  const auto missing = [&](const PlannedExpert& planned) {
    return DecodedBlob({layer, planned.expert}) == nullptr;
  };
  const auto missing_count = static_cast<uint64_t>(std::ranges::count_if(plan.experts, missing));
  if (decoded_used_bytes_ + missing_count * bytes > decoded_.data().size()) {
    std::fill(decoded_of_.begin(), decoded_of_.end(), nullptr);  // full: forget all of them
    decoded_used_bytes_ = 0;
  }
  const auto decode = [&](size_t i) -> absl::Status {
    const std::byte*& decoded = DecodedBlob({layer, plan.experts[i].expert});
    if (decoded == nullptr) {
      HEARTH_ASSIGN_OR_RETURN(const std::byte* const blob, stored(i));
      std::byte* const copy = decoded_.data().data() + decoded_used_bytes_;
      deps_.kernels.decode_expert.fn(
          {.layout = &layouts_[layer.value], .blob = blob, .f32_blob = copy});
      decoded_used_bytes_ += bytes;
      decoded = copy;
    }
    done(i);
    weights[i] = {.blob = decoded};
    return absl::OkStatus();
  };
  // What is at hand goes first: reads may need the very blocks that its leases hold.
  for (const bool from_drive : {false, true}) {
    for (size_t i = 0; i < plan.experts.size(); ++i) {
      if ((plan.experts[i].service == Service::kSsd) != from_drive) continue;
      HEARTH_RETURN_IF_ERROR(decode(i));
    }
  }
  return absl::OkStatus();
}

void ExpertPool::MakeJobs(const WindowPlan& plan, std::span<const ExpertWeights> weights) {
  jobs_.clear();
  flow_jobs_.clear();
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    const PlannedExpert& planned = plan.experts[i];
    jobs_.push_back(
        {.blob = weights[i].blob, .first_entry = planned.entry_begin, .rows = planned.entry_count});
    flow_jobs_.push_back({.rows = planned.entry_count,
                          .node = weights[i].node,
                          .late = weights[i].blob == nullptr,
                          .absent = weights[i].elsewhere});
  }
}

QuantizedRows ExpertPool::Slice(const QuantizedSpans& spans, uint32_t cols, uint32_t first,
                                uint32_t rows) {
  const QuantizedRows all{
      .q = spans.q.data(), .scale = spans.scale.data(), .sum16 = spans.sum16.data(), .cols = cols};
  return all.Slice(first, rows);
}

void ExpertPool::RotateInput(const ExpertRows& input) {
  const auto rotate = [&](uint32_t worker, uint32_t begin, uint32_t end) {
    deps_.kernels.rotate_quantize_rows.fn(
        {.x = input.x + size_t{begin} * hidden_,
         .x_stride = hidden_,
         .rows = end - begin,
         .cols = hidden_,
         .scratch = buffers_.rotation.data() + size_t{worker} * std::max(hidden_, width_),
         .q = buffers_.input_xt.q.data() + size_t{begin} * hidden_,
         .scale = buffers_.input_xt.scale.data() + begin,
         .sum = buffers_.input_xt.sum.data() + begin});
  };
  if (input.rows <= kRotatedAlone) return rotate(0, 0, input.rows);
  deps_.team.ForRanges(input.rows, 1, rotate);
}

void ExpertPool::PlaceRows(const Layer& layer) {
  for (size_t j = 0; j < jobs_.size(); ++j) {
    Job& job = jobs_[j];
    const RouteEntry* entries = layer.plan->entries.data() + job.first_entry;
    // Rows rise, so they follow each other when the last is as far off as it can be near.
    const bool in_place = entries[job.rows - 1].row - entries[0].row == job.rows - 1;
    flow_jobs_[j].prepared = in_place;
    if (layer.form == RowForm::kRotated) {
      job.xt = in_place ? buffers_.input_xt.Slice(hidden_, entries[0].row, job.rows)
                        : buffers_.gathered_xt.Slice(hidden_, job.first_entry, job.rows);
    } else if (layer.form == RowForm::kBlocks) {
      job.xq = in_place ? layer.input.quantized.Slice(entries[0].row, job.rows)
                        : Slice(buffers_.gathered_q, hidden_, job.first_entry, job.rows);
    } else {
      job.x = in_place ? layer.input.x + size_t{entries[0].row} * hidden_
                       : buffers_.gathered_x.data() + size_t{job.first_entry} * hidden_;
    }
  }
}

void ExpertPool::GatherRows(const Layer& layer, const Job& job) {
  const size_t blocks = ActivationBlocks(hidden_);
  const size_t q_row = blocks * kActivationBlockValues;
  const QuantizedRows& from = layer.input.quantized;
  for (size_t i = job.first_entry; i < size_t{job.first_entry} + job.rows; ++i) {
    const size_t row = layer.plan->entries[i].row;
    if (layer.form == RowForm::kRotated) {
      std::copy_n(buffers_.input_xt.q.data() + row * hidden_, hidden_,
                  buffers_.gathered_xt.q.data() + i * hidden_);
      buffers_.gathered_xt.scale[i] = buffers_.input_xt.scale[row];
      buffers_.gathered_xt.sum[i] = buffers_.input_xt.sum[row];
    } else if (layer.form == RowForm::kBlocks) {
      std::copy_n(from.q + row * q_row, q_row, buffers_.gathered_q.q.data() + i * q_row);
      std::copy_n(from.scale + row * blocks, blocks, buffers_.gathered_q.scale.data() + i * blocks);
      std::copy_n(from.sum16 + row * blocks * 2, blocks * 2,
                  buffers_.gathered_q.sum16.data() + i * blocks * 2);
    } else {
      std::copy_n(layer.input.x + row * hidden_, hidden_, buffers_.gathered_x.data() + i * hidden_);
    }
  }
}

void ExpertPool::GateUp(const Layer& layer, const Job& job, const FlowPiece& piece) {
  deps_.kernels.expert_gate_up.fn({.layout = &layer.layout,
                                   .blob = job.blob,
                                   .xq = job.xq,
                                   .x = job.x,
                                   .x_stride = hidden_,
                                   .rows = job.rows,
                                   .h = buffers_.h.data() + size_t{job.first_entry} * width_,
                                   .h_stride = width_,
                                   .band_begin = piece.band_begin,
                                   .band_end = piece.band_end,
                                   .xt = job.xt});
}

void ExpertPool::FinishHidden(const Layer& layer, const Job& job, uint32_t worker) {
  if (layer.form == RowForm::kFloat) return;
  if (layer.form == RowForm::kRotated) {
    deps_.kernels.rotate_quantize_rows.fn(
        {.x = buffers_.h.data() + size_t{job.first_entry} * width_,
         .x_stride = width_,
         .rows = job.rows,
         .cols = width_,
         .scratch = buffers_.rotation.data() + size_t{worker} * std::max(hidden_, width_),
         .q = buffers_.hidden_xt.q.data() + size_t{job.first_entry} * width_,
         .scale = buffers_.hidden_xt.scale.data() + job.first_entry,
         .sum = buffers_.hidden_xt.sum.data() + job.first_entry});
    return;
  }
  const size_t first = size_t{job.first_entry} * ActivationBlocks(width_);
  deps_.kernels.quantize_rows.fn({.x = buffers_.h.data() + size_t{job.first_entry} * width_,
                                  .x_stride = width_,
                                  .rows = job.rows,
                                  .cols = width_,
                                  .q = buffers_.hidden_q.q.data() + first * kActivationBlockValues,
                                  .scale = buffers_.hidden_q.scale.data() + first,
                                  .sum16 = buffers_.hidden_q.sum16.data() + first * 2});
}

void ExpertPool::Down(const Layer& layer, const Job& job, const FlowPiece& piece, uint32_t worker) {
  const auto output_of = [&](uint32_t i) {
    const RouteEntry& entry = layer.plan->entries[job.first_entry + i];
    return layer.output.data() + (size_t{entry.row} * options_.ranks + entry.rank) * hidden_;
  };
  // A single row is computed where it belongs, several are apart from each other there.
  float* const y = job.rows == 1 ? output_of(0)
                                 : buffers_.y.data() + size_t{worker} * options_.rows_max * hidden_;
  deps_.kernels.expert_down.fn({.layout = &layer.layout,
                                .blob = job.blob,
                                .hq = Slice(buffers_.hidden_q, width_, job.first_entry, job.rows),
                                .h = buffers_.h.data() + size_t{job.first_entry} * width_,
                                .h_stride = width_,
                                .rows = job.rows,
                                .y = y,
                                .y_stride = hidden_,
                                .band_begin = piece.band_begin,
                                .band_end = piece.band_end,
                                .ht = buffers_.hidden_xt.Slice(width_, job.first_entry, job.rows)});
  if (job.rows == 1) return;
  const uint32_t first = piece.band_begin * kBandRows;
  const uint32_t count = std::min(piece.band_end * kBandRows, hidden_) - first;
  for (uint32_t i = 0; i < job.rows; ++i) {
    std::copy_n(y + size_t{i} * hidden_ + first, count, output_of(i) + first);
  }
}

void ExpertPool::RunPieces(const Layer& layer, uint32_t worker) {
  const uint32_t node = deps_.team.node_of(worker);
  LayerTimes& times = worker_times_[worker].times;
  int64_t last_ns = deps_.clock.NowNs();
  for (FlowPiece piece; flow_->Next(node, &piece);) {
    const int64_t begin_ns = deps_.clock.NowNs();
    times.wait_ns += begin_ns - last_ns;
    const Job& job = jobs_[piece.job];
    switch (piece.phase) {
      case FlowPhase::kPrepare:
        GatherRows(layer, job);
        break;
      case FlowPhase::kGateUp:
        GateUp(layer, job, piece);
        break;
      case FlowPhase::kDown:
        Down(layer, job, piece, worker);
        break;
    }
    const FlowEvent event = flow_->Finish(piece);
    if (event == FlowEvent::kHiddenComplete) {
      FinishHidden(layer, job, worker);
      flow_->PublishHidden(piece.job);
    } else if (event == FlowEvent::kExpertDone && layer.done != nullptr) {
      layer.done->OnExpertDone(piece.job);
    }
    last_ns = deps_.clock.NowNs();
    if (trace_ != nullptr) {
      trace_->Add({.name = NameOf(piece.phase),
                   .lane = TraceLane::kWorker,
                   .number = static_cast<uint16_t>(worker),
                   .begin_ns = begin_ns,
                   .end_ns = last_ns,
                   .layer = layer.id,
                   .expert = layer.plan->experts[piece.job].expert,
                   .row_count = job.rows});
    }
    const auto service = static_cast<uint32_t>(layer.plan->experts[piece.job].service);
    times.service_ns[service] += last_ns - begin_ns;
  }
}

bool ExpertPool::DecodesFirst(LayerId layer, const ExpertRows& input) const {
  const ExpertFormat format = layouts_[layer.value].format;
  return input.quantized.q == nullptr &&
         (format == ExpertFormat::kNvfp4 || format == ExpertFormat::kXt);
}

void ExpertPool::Begin(LayerId layer_id, const WindowPlan& plan, const ExpertRows& input,
                       std::span<const ExpertWeights> weights, std::span<float> output,
                       ExpertDoneSink* done) {
  HEARTH_CHECK(input.rows <= options_.rows_max);
  HEARTH_CHECK(output.size() >= plan.entries.size() * hidden_);
  HEARTH_CHECK(weights.size() == plan.experts.size());
  const ExpertLayout& stored = layouts_[layer_id.value];
  const bool decode = DecodesFirst(layer_id, input);
  layer_ = {.id = layer_id,
            .layout = stored,
            .plan = &plan,
            .input = input,
            .output = output,
            .done = done};
  if (decode) layer_.layout = {.format = ExpertFormat::kF32, .hidden = hidden_, .width = width_};
  layer_.form = input.quantized.q == nullptr            ? RowForm::kFloat
                : stored.format == ExpertFormat::kNvfp4 ? RowForm::kBlocks
                : stored.format == ExpertFormat::kXt    ? RowForm::kRotated
                                                        : RowForm::kFloat;
  MakeJobs(plan, weights);
  layer_.has_work = !std::ranges::all_of(flow_jobs_, &FlowJob::absent);
  if (!layer_.has_work) return;
  if (layer_.form == RowForm::kRotated) RotateInput(layer_.input);
  PlaceRows(layer_);
  flow_->Begin(flow_jobs_, ShapeOf(layer_.layout));
}

void ExpertPool::Arrive(uint32_t index, const std::byte* blob) {
  jobs_[index].blob = blob;
  flow_->Arrive(index, blob != nullptr);
}

LayerTimes ExpertPool::Finish() {
  if (!layer_.has_work) return {};
  for (WorkerTimes& worker : worker_times_) worker.times = {};
  deps_.team.ForRanges(deps_.team.worker_count(), 1,
                       [&](uint32_t worker, uint32_t, uint32_t) { RunPieces(layer_, worker); });
  LayerTimes sum;
  for (const WorkerTimes& worker : worker_times_) {
    sum.wait_ns += worker.times.wait_ns;
    for (uint32_t s = 0; s < kServiceCount; ++s) sum.service_ns[s] += worker.times.service_ns[s];
  }
  return sum;
}

}  // namespace hearth
