#include "runtime/experts/expert_pool.h"

#include <algorithm>
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

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertPool>> ExpertPool::Create(const Deps& deps,
                                                               const Options& options) {
  std::unique_ptr<ExpertPool> pool(new ExpertPool(deps, options));
  HEARTH_RETURN_IF_ERROR(pool->Allocate());
  return pool;
}

absl::Status ExpertPool::Allocate() {
  const ExpertLayout& shape = deps_.store.layout(LayerId(0));
  hidden_ = shape.hidden;
  width_ = shape.width;
  const uint64_t entries = uint64_t{options_.rows_max} * options_.ranks;
  const uint64_t worker_rows = uint64_t{deps_.team.worker_count()} * options_.rows_max;
  const auto reserve_quantized = [&](QuantizedSpans& spans, uint32_t cols) {
    const uint64_t blocks = ActivationBlocks(cols);
    scratch_.Reserve(spans.q, entries * blocks * kActivationBlockValues);
    scratch_.Reserve(spans.scale, entries * blocks);
    scratch_.Reserve(spans.sum16, entries * blocks * 2);
  };
  reserve_quantized(gathered_q_, hidden_);
  reserve_quantized(hidden_q_, width_);
  scratch_.Reserve(gathered_x_, entries * hidden_);
  scratch_.Reserve(h_, entries * width_);
  scratch_.Reserve(y_, worker_rows * hidden_);
  ReserveXt(entries);
  HEARTH_RETURN_IF_ERROR(Annotate(scratch_.Allocate(), "buffers of the expert pool"));
  const uint64_t jobs_max = std::min<uint64_t>(entries, deps_.store.expert_count());
  leases_.reserve(jobs_max);
  jobs_.reserve(jobs_max);
  flow_jobs_.reserve(jobs_max);
  flow_ = std::make_unique<ExpertFlow>(static_cast<uint32_t>(jobs_max), deps_.team.worker_count(),
                                       deps_.team.node_count());
  return absl::OkStatus();
}

void ExpertPool::ReserveXt(uint64_t entries) {
  bool has_xt = false;
  for (uint32_t layer = 0; layer < deps_.store.layer_count(); ++layer) {
    has_xt |= deps_.store.layout(LayerId(layer)).format == ExpertFormat::kXt;
  }
  if (!has_xt) return;
  const auto reserve = [&](XtSpans& spans, uint64_t rows, uint32_t cols) {
    scratch_.Reserve(spans.q, rows * cols);
    scratch_.Reserve(spans.scale, rows);
    scratch_.Reserve(spans.sum, rows);
  };
  reserve(input_xt_, options_.rows_max, hidden_);
  reserve(gathered_xt_, entries, hidden_);
  reserve(hidden_xt_, entries, width_);
  scratch_.Reserve(rotation_, uint64_t{deps_.team.worker_count()} * std::max(hidden_, width_));
}

absl::StatusOr<const std::byte*> ExpertPool::DecodedBlob(ExpertKey key) {
  const size_t index = size_t{key.layer.value} * deps_.store.expert_count() + key.expert.value;
  if (decoded_of_.empty()) {
    decoded_of_.resize(size_t{deps_.store.layer_count()} * deps_.store.expert_count());
    HEARTH_ASSIGN_OR_RETURN(decoded_, AnonymousMapping::Create(options_.decoded_bytes_max));
  }
  if (decoded_of_[index] != nullptr) return decoded_of_[index];
  const ExpertLayout& layout = deps_.store.layout(key.layer);
  const ExpertLayout f32{.format = ExpertFormat::kF32, .hidden = hidden_, .width = width_};
  const uint64_t bytes = AlignUp(f32.blob_bytes(), 64);
  if (decoded_used_bytes_ + bytes > decoded_.data().size()) {
    return absl::ResourceExhaustedError("decoded");
  }
  HEARTH_ASSIGN_OR_RETURN(const ExpertLease lease, deps_.store.Acquire(key));
  std::byte* const blob = decoded_.data().data() + decoded_used_bytes_;
  deps_.kernels.decode_expert.fn(
      {.layout = &layout, .blob = lease.bytes().data(), .f32_blob = blob});
  decoded_used_bytes_ += bytes;
  decoded_of_[index] = blob;
  return blob;
}

absl::Status ExpertPool::AcquireAll(LayerId layer, const WindowPlan& plan, bool decode) {
  jobs_.clear();
  flow_jobs_.clear();
  leases_.clear();
  const ExpertLayout& layout = deps_.store.layout(layer);
  bool restarted = false;
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    const PlannedExpert& planned = plan.experts[i];
    const ExpertKey key{layer, planned.expert};
    Job job{.first_entry = planned.entry_begin, .rows = planned.entry_count};
    if (decode) {
      absl::StatusOr<const std::byte*> blob = DecodedBlob(key);
      if (!blob.ok() && absl::IsResourceExhausted(blob.status()) && !restarted) {
        // Full: forget all decoded experts and start this layer again.
        std::fill(decoded_of_.begin(), decoded_of_.end(), nullptr);
        decoded_used_bytes_ = 0;
        restarted = true;
        jobs_.clear();
        flow_jobs_.clear();
        i = SIZE_MAX;  // the loop increment wraps to 0
        continue;
      }
      if (!blob.ok() && absl::IsResourceExhausted(blob.status())) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "reference arithmetic: one layer's ", plan.experts.size(),
            " experts in fp32 do not fit its budget of ", FormatBytes(options_.decoded_bytes_max)));
      }
      HEARTH_RETURN_IF_ERROR(blob.status());
      job.blob = *blob;
    } else {
      HEARTH_ASSIGN_OR_RETURN(ExpertLease lease, deps_.store.Acquire(key));
      job.blob = lease.bytes().data();
      leases_.push_back(std::move(lease));
    }
    jobs_.push_back(job);
    flow_jobs_.push_back({.rows = job.rows, .node = deps_.store.NodeOf(key)});
  }
  stats_.expert_count += plan.experts.size();
  stats_.entry_count += plan.entries.size();
  stats_.weight_bytes += plan.experts.size() * layout.blob_bytes();
  return absl::OkStatus();
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
         .scratch = rotation_.data() + size_t{worker} * std::max(hidden_, width_),
         .q = input_xt_.q.data() + size_t{begin} * hidden_,
         .scale = input_xt_.scale.data() + begin,
         .sum = input_xt_.sum.data() + begin});
  };
  if (input.rows <= kRotatedAlone) return rotate(0, 0, input.rows);
  deps_.team.ForRanges(input.rows, 1, rotate);
}

void ExpertPool::PlaceRows(const Layer& layer) {
  for (size_t j = 0; j < jobs_.size(); ++j) {
    Job& job = jobs_[j];
    const RouteEntry* entries = layer.plan.entries.data() + job.first_entry;
    // Rows rise, so they follow each other when the last is as far off as it can be near.
    const bool in_place = entries[job.rows - 1].row - entries[0].row == job.rows - 1;
    flow_jobs_[j].prepared = in_place;
    if (layer.form == RowForm::kRotated) {
      job.xt = in_place ? input_xt_.Slice(hidden_, entries[0].row, job.rows)
                        : gathered_xt_.Slice(hidden_, job.first_entry, job.rows);
    } else if (layer.form == RowForm::kBlocks) {
      job.xq = in_place ? layer.input.quantized.Slice(entries[0].row, job.rows)
                        : Slice(gathered_q_, hidden_, job.first_entry, job.rows);
    } else {
      job.x = in_place ? layer.input.x + size_t{entries[0].row} * hidden_
                       : gathered_x_.data() + size_t{job.first_entry} * hidden_;
    }
  }
}

void ExpertPool::GatherRows(const Layer& layer, const Job& job) {
  const size_t blocks = ActivationBlocks(hidden_);
  const size_t q_row = blocks * kActivationBlockValues;
  const QuantizedRows& from = layer.input.quantized;
  for (size_t i = job.first_entry; i < size_t{job.first_entry} + job.rows; ++i) {
    const size_t row = layer.plan.entries[i].row;
    if (layer.form == RowForm::kRotated) {
      std::copy_n(input_xt_.q.data() + row * hidden_, hidden_, gathered_xt_.q.data() + i * hidden_);
      gathered_xt_.scale[i] = input_xt_.scale[row];
      gathered_xt_.sum[i] = input_xt_.sum[row];
    } else if (layer.form == RowForm::kBlocks) {
      std::copy_n(from.q + row * q_row, q_row, gathered_q_.q.data() + i * q_row);
      std::copy_n(from.scale + row * blocks, blocks, gathered_q_.scale.data() + i * blocks);
      std::copy_n(from.sum16 + row * blocks * 2, blocks * 2,
                  gathered_q_.sum16.data() + i * blocks * 2);
    } else {
      std::copy_n(layer.input.x + row * hidden_, hidden_, gathered_x_.data() + i * hidden_);
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
                                   .h = h_.data() + size_t{job.first_entry} * width_,
                                   .h_stride = width_,
                                   .band_begin = piece.band_begin,
                                   .band_end = piece.band_end,
                                   .xt = job.xt});
}

void ExpertPool::FinishHidden(const Layer& layer, const Job& job, uint32_t worker) {
  if (layer.form == RowForm::kFloat) return;
  if (layer.form == RowForm::kRotated) {
    deps_.kernels.rotate_quantize_rows.fn(
        {.x = h_.data() + size_t{job.first_entry} * width_,
         .x_stride = width_,
         .rows = job.rows,
         .cols = width_,
         .scratch = rotation_.data() + size_t{worker} * std::max(hidden_, width_),
         .q = hidden_xt_.q.data() + size_t{job.first_entry} * width_,
         .scale = hidden_xt_.scale.data() + job.first_entry,
         .sum = hidden_xt_.sum.data() + job.first_entry});
    return;
  }
  const size_t first = size_t{job.first_entry} * ActivationBlocks(width_);
  deps_.kernels.quantize_rows.fn({.x = h_.data() + size_t{job.first_entry} * width_,
                                  .x_stride = width_,
                                  .rows = job.rows,
                                  .cols = width_,
                                  .q = hidden_q_.q.data() + first * kActivationBlockValues,
                                  .scale = hidden_q_.scale.data() + first,
                                  .sum16 = hidden_q_.sum16.data() + first * 2});
}

void ExpertPool::Down(const Layer& layer, const Job& job, const FlowPiece& piece, uint32_t worker) {
  const auto output_of = [&](uint32_t i) {
    const RouteEntry& entry = layer.plan.entries[job.first_entry + i];
    return layer.output.data() + (size_t{entry.row} * options_.ranks + entry.rank) * hidden_;
  };
  // A single row is computed where it belongs, several are apart from each other there.
  float* const y =
      job.rows == 1 ? output_of(0) : y_.data() + size_t{worker} * options_.rows_max * hidden_;
  deps_.kernels.expert_down.fn({.layout = &layer.layout,
                                .blob = job.blob,
                                .hq = Slice(hidden_q_, width_, job.first_entry, job.rows),
                                .h = h_.data() + size_t{job.first_entry} * width_,
                                .h_stride = width_,
                                .rows = job.rows,
                                .y = y,
                                .y_stride = hidden_,
                                .band_begin = piece.band_begin,
                                .band_end = piece.band_end,
                                .ht = hidden_xt_.Slice(width_, job.first_entry, job.rows)});
  if (job.rows == 1) return;
  const uint32_t first = piece.band_begin * kBandRows;
  const uint32_t count = std::min(piece.band_end * kBandRows, hidden_) - first;
  for (uint32_t i = 0; i < job.rows; ++i) {
    std::copy_n(y + size_t{i} * hidden_ + first, count, output_of(i) + first);
  }
}

void ExpertPool::RunPieces(const Layer& layer, uint32_t worker) {
  const uint32_t node = deps_.team.node_of(worker);
  for (FlowPiece piece; flow_->Next(node, &piece);) {
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
    if (flow_->Finish(piece)) {
      FinishHidden(layer, job, worker);
      flow_->PublishHidden(piece.job);
    }
  }
}

absl::Status ExpertPool::Run(LayerId layer_id, const WindowPlan& plan, const ExpertRows& input,
                             std::span<float> output) {
  HEARTH_CHECK(input.rows <= options_.rows_max);
  HEARTH_CHECK(output.size() >= plan.entries.size() * hidden_);
  const ExpertLayout& stored = deps_.store.layout(layer_id);
  const bool reference = input.quantized.q == nullptr;
  const RowForm stored_form = stored.format == ExpertFormat::kNvfp4 ? RowForm::kBlocks
                              : stored.format == ExpertFormat::kXt  ? RowForm::kRotated
                                                                    : RowForm::kFloat;
  const bool decode = reference && stored_form != RowForm::kFloat;
  const Layer layer{
      .layout = decode
                    ? ExpertLayout{.format = ExpertFormat::kF32, .hidden = hidden_, .width = width_}
                    : stored,
      .plan = plan,
      .input = input,
      .output = output,
      .form = reference ? RowForm::kFloat : stored_form};
  HEARTH_RETURN_IF_ERROR(AcquireAll(layer_id, plan, decode));
  if (layer.form == RowForm::kRotated) RotateInput(input);
  PlaceRows(layer);
  flow_->Begin(flow_jobs_, ShapeOf(layer.layout));
  deps_.team.ForRanges(deps_.team.worker_count(), 1,
                       [&](uint32_t worker, uint32_t, uint32_t) { RunPieces(layer, worker); });
  leases_.clear();
  return absl::OkStatus();
}

}  // namespace hearth
