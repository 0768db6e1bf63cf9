#include "runtime/experts/expert_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// What one band costs beside its rows: reading and decoding its weights, in units of one row's
// work.
constexpr uint32_t kBandCostRows = 2;

// Hands out consecutive spans of one mapping.
class Cutter {
 public:
  explicit Cutter(std::span<std::byte> from) : from_(from) {}
  template <class T>
  std::span<T> Take(uint64_t count) {
    const std::span<T> span(reinterpret_cast<T*>(from_.data() + used_bytes_), count);
    used_bytes_ += AlignUp(count * sizeof(T), 64);
    if (!from_.empty()) HEARTH_CHECK(used_bytes_ <= from_.size());
    return span;
  }
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::span<std::byte> from_;
  uint64_t used_bytes_ = 0;
};

// Calls body(job, band_begin, band_end) for the bands that fall into [begin, end) of the cost line,
// on which job j takes bands * (rows_j + kBandCostRows). Every band falls into exactly one range.
template <class Jobs, class Body>
void ForBandsInRange(const Jobs& jobs, uint32_t bands, uint32_t begin, uint32_t end, Body&& body) {
  uint64_t start = 0;
  for (const auto& job : jobs) {
    const uint64_t step = job.rows + kBandCostRows;
    const auto band_at = [&](uint64_t point) {  // first band that starts at or after `point`
      const uint64_t band = point <= start ? 0 : (point - start + step - 1) / step;
      return static_cast<uint32_t>(std::min<uint64_t>(band, bands));
    };
    const uint32_t b = band_at(begin);
    const uint32_t e = band_at(end);
    if (b < e) body(job, b, e);
    start += bands * step;
    if (start >= end) return;
  }
}

template <class Jobs>
uint32_t TotalCost(const Jobs& jobs, uint32_t bands) {
  uint64_t cost = 0;
  for (const auto& job : jobs) cost += uint64_t{bands} * (job.rows + kBandCostRows);
  HEARTH_CHECK(cost <= UINT32_MAX);
  return static_cast<uint32_t>(cost);
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
  const uint64_t in_blocks = ActivationBlocks(hidden_);
  const uint64_t h_blocks = ActivationBlocks(width_);
  const auto cut = [&](Cutter& cutter) {
    gathered_.q = cutter.Take<int8_t>(entries * in_blocks * kActivationBlockValues);
    gathered_.scale = cutter.Take<float>(entries * in_blocks);
    gathered_.sum16 = cutter.Take<int32_t>(entries * in_blocks * 2);
    gathered_.x = cutter.Take<float>(entries * hidden_);
    h_ = cutter.Take<float>(entries * width_);
    y_ = cutter.Take<float>(worker_rows * hidden_);
    hq_ = cutter.Take<int8_t>(worker_rows * h_blocks * kActivationBlockValues);
    hscale_ = cutter.Take<float>(worker_rows * h_blocks);
    hsum_ = cutter.Take<int32_t>(worker_rows * h_blocks * 2);
  };
  Cutter sizes({});
  cut(sizes);
  absl::StatusOr<AnonymousMapping> mapping = AnonymousMapping::Create(sizes.used_bytes());
  if (!mapping.ok()) return Annotate(mapping.status(), "buffers of the expert pool");
  scratch_ = *std::move(mapping);
  Cutter places(scratch_.data());
  cut(places);
  const uint64_t jobs_max = std::min<uint64_t>(entries, deps_.store.expert_count());
  leases_.reserve(jobs_max);
  jobs_.reserve(jobs_max);
  return absl::OkStatus();
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
  }
  stats_.expert_count += plan.experts.size();
  stats_.entry_count += plan.entries.size();
  stats_.weight_bytes += plan.experts.size() * layout.blob_bytes();
  return absl::OkStatus();
}

void ExpertPool::Gather(const ExpertLayout& layout, const WindowPlan& plan,
                        const ExpertRows& input) {
  const size_t blocks = ActivationBlocks(hidden_);
  const size_t q_row = blocks * kActivationBlockValues;
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const size_t row = plan.entries[i].row;
    if (layout.format == ExpertFormat::kNvfp4 && input.quantized.q != nullptr) {
      std::copy_n(input.quantized.q + row * q_row, q_row, gathered_.q.data() + i * q_row);
      std::copy_n(input.quantized.scale + row * blocks, blocks,
                  gathered_.scale.data() + i * blocks);
      std::copy_n(input.quantized.sum16 + row * blocks * 2, blocks * 2,
                  gathered_.sum16.data() + i * blocks * 2);
    } else {
      std::copy_n(input.x + row * hidden_, hidden_, gathered_.x.data() + i * hidden_);
    }
  }
}

void ExpertPool::GateUp(const ExpertLayout& layout, uint32_t unit_begin, uint32_t unit_end) {
  const QuantizedRows all{.q = gathered_.q.data(),
                          .scale = gathered_.scale.data(),
                          .sum16 = gathered_.sum16.data(),
                          .rows = 0,
                          .cols = hidden_};
  ForBandsInRange(jobs_, BandCount(width_), unit_begin, unit_end,
                  [&](const Job& job, uint32_t band_begin, uint32_t band_end) {
                    deps_.kernels.expert_gate_up.fn(
                        {.layout = &layout,
                         .blob = job.blob,
                         .xq = all.Slice(job.first_entry, job.rows),
                         .x = gathered_.x.data() + size_t{job.first_entry} * hidden_,
                         .x_stride = hidden_,
                         .rows = job.rows,
                         .h = h_.data() + size_t{job.first_entry} * width_,
                         .h_stride = width_,
                         .band_begin = band_begin,
                         .band_end = band_end});
                  });
}

void ExpertPool::Down(const ExpertLayout& layout, const WindowPlan& plan, uint32_t worker,
                      uint32_t unit_begin, uint32_t unit_end, std::span<float> output) {
  const size_t blocks = ActivationBlocks(width_);
  const size_t first_row = size_t{worker} * options_.rows_max;
  float* const y = y_.data() + first_row * hidden_;
  const QuantizeRowsArgs buffers{.q = hq_.data() + first_row * blocks * kActivationBlockValues,
                                 .scale = hscale_.data() + first_row * blocks,
                                 .sum16 = hsum_.data() + first_row * blocks * 2};
  ForBandsInRange(
      jobs_, BandCount(hidden_), unit_begin, unit_end,
      [&](const Job& job, uint32_t band_begin, uint32_t band_end) {
        const float* const h = h_.data() + size_t{job.first_entry} * width_;
        if (layout.format == ExpertFormat::kNvfp4) {
          // Every worker that shares an expert quantises its hidden rows again: a few hundred
          // values, cheaper than a third fork-join.
          QuantizeRowsArgs quantize = buffers;
          quantize.x = h;
          quantize.x_stride = width_;
          quantize.rows = job.rows;
          quantize.cols = width_;
          deps_.kernels.quantize_rows.fn(quantize);
        }
        deps_.kernels.expert_down.fn({.layout = &layout,
                                      .blob = job.blob,
                                      .hq = {.q = buffers.q,
                                             .scale = buffers.scale,
                                             .sum16 = buffers.sum16,
                                             .rows = job.rows,
                                             .cols = width_},
                                      .h = h,
                                      .h_stride = width_,
                                      .rows = job.rows,
                                      .y = y,
                                      .y_stride = hidden_,
                                      .band_begin = band_begin,
                                      .band_end = band_end});
        const uint32_t first = band_begin * kBandRows;
        const uint32_t count = std::min(band_end * kBandRows, hidden_) - first;
        for (uint32_t i = 0; i < job.rows; ++i) {
          const RouteEntry& entry = plan.entries[job.first_entry + i];
          std::copy_n(
              y + size_t{i} * hidden_ + first, count,
              output.data() + (size_t{entry.row} * options_.ranks + entry.rank) * hidden_ + first);
        }
      });
}

absl::Status ExpertPool::Run(LayerId layer, const WindowPlan& plan, const ExpertRows& input,
                             std::span<float> output) {
  HEARTH_CHECK(input.rows <= options_.rows_max);
  HEARTH_CHECK(output.size() >= plan.entries.size() * hidden_);
  const ExpertLayout& stored = deps_.store.layout(layer);
  const bool reference = input.quantized.q == nullptr;
  const bool decode = reference && stored.format == ExpertFormat::kNvfp4;
  const ExpertLayout layout =
      decode ? ExpertLayout{.format = ExpertFormat::kF32, .hidden = hidden_, .width = width_}
             : stored;
  HEARTH_RETURN_IF_ERROR(AcquireAll(layer, plan, decode));
  Gather(layout, plan, input);
  deps_.team.ForRanges(TotalCost(jobs_, BandCount(width_)), 1,
                       [&](uint32_t, uint32_t begin, uint32_t end) { GateUp(layout, begin, end); });
  deps_.team.ForRanges(TotalCost(jobs_, BandCount(hidden_)), 1,
                       [&](uint32_t worker, uint32_t begin, uint32_t end) {
                         Down(layout, plan, worker, begin, end, output);
                       });
  leases_.clear();
  return absl::OkStatus();
}

}  // namespace hearth
