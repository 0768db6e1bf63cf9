#include "pack/convert/expert_writer.h"

#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>
#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/convert/ordered_batches.h"
#include "pack/quant/xt_encoder.h"
#include "pack/writer/container_writers.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// Experts that are being encoded at once: enough for every core, as each has dozens of parts.
constexpr uint32_t kExpertsInFlightMin = 4;
constexpr uint32_t kWorkersPerExpert = 16;
// A device gets many matrices of a shape in one call, and the next while the first are encoded.
constexpr uint32_t kExpertsPerDeviceCall = 17;
constexpr uint32_t kDeviceCallsInFlight = 2;

class ExpertsWriting {
 public:
  ExpertsWriting(const ExpertWritePlan& plan, WorkerTeam& team, ExpertFileWriter writer)
      : plan_(plan), team_(team), writer_(std::move(writer)), encoder_(BestXtIsa(), plan.device) {
    for (const ExpertLayout& layout : plan.layouts) {
      const uint64_t values = uint64_t{layout.hidden} * layout.width * 3 * plan.expert_count;
      if (layout.format == ExpertFormat::kXt) {
        xt_weights_ += values;
      } else {
        other_bytes_ += layout.stride_bytes() * plan.expert_count;
      }
    }
  }

  absl::StatusOr<ExpertWriteResult> Run() {
    for (uint32_t layer = 0; layer < plan_.layouts.size(); ++layer) {
      const bool is_xt = plan_.layouts[layer].format == ExpertFormat::kXt;
      HEARTH_RETURN_IF_ERROR(is_xt ? EncodeLayer(LayerId(layer)) : RepackLayer(LayerId(layer)));
    }
    HEARTH_ASSIGN_OR_RETURN(result_.file, writer_.Finish());
    return std::move(result_);
  }

 private:
  struct Item {
    ExpertKey key{LayerId(0), ExpertId(0)};
    SourceExpert source;
    XtExpertFeedback feedback;
    std::vector<std::byte> blob;
    uint32_t crc32c = 0;
    RepackStats stats;
    absl::Status status;
  };

  static absl::Status Name(const absl::Status& status, ExpertKey key) {
    if (status.ok()) return status;
    return Annotate(status, absl::StrCat("layer ", key.layer.value, " expert ", key.expert.value));
  }

  absl::Status Take(const Item& item) {
    HEARTH_RETURN_IF_ERROR(item.status);
    HEARTH_RETURN_IF_ERROR(writer_.Append(item.blob, item.crc32c));
    result_.stats.Add(item.stats);
    return absl::OkStatus();
  }

  absl::Status RepackLayer(LayerId layer) {
    const ExpertLayout& layout = plan_.layouts[layer.value];
    const auto make = [&](uint64_t i, Item& item) -> absl::Status {
      item.key = {layer, ExpertId(static_cast<uint32_t>(i))};
      HEARTH_RETURN_IF_ERROR(plan_.read(item.key, item.source));
      item.blob.resize(layout.blob_bytes());
      item.stats = {};
      HEARTH_RETURN_IF_ERROR(
          Name(PackExpert(layout, item.source, item.blob, item.stats), item.key));
      item.crc32c = Crc32c(item.blob);
      return absl::OkStatus();
    };
    const auto take = [&](uint64_t, Item& item) -> absl::Status {
      HEARTH_RETURN_IF_ERROR(Take(item));
      done_bytes_ += layout.stride_bytes();
      if (plan_.progress) {
        plan_.progress(
            {.stage = "experts", .done_bytes = done_bytes_, .total_bytes = other_bytes_});
      }
      return absl::OkStatus();
    };
    // The blob, and at worst decoded values beside the source's codes.
    const uint64_t item_bytes =
        layout.blob_bytes() + uint64_t{layout.hidden} * layout.width * 3 * 5;
    return ForEachInOrder<Item>(team_, plan_.expert_count, BatchCount(team_, item_bytes), make,
                                take);
  }

  // Experts that are encoded in one call.
  struct Batch {
    std::vector<Item> items;
    size_t count = 0;  // of them in use
    absl::Status status;
  };

  absl::Status EncodeBatch(const ExpertLayout& layout, Batch& batch) const {
    std::vector<XtExpertJob> jobs;
    for (Item& item : std::span(batch.items).first(batch.count)) {
      HEARTH_RETURN_IF_ERROR(item.status);
      item.blob.resize(layout.blob_bytes());
      item.stats = {};
      jobs.push_back({.source = &item.source,
                      .gate_up = item.feedback.gate_up.get(),
                      .down = item.feedback.down.get(),
                      .blob = item.blob,
                      .stats = &item.stats});
    }
    const absl::Status encoded = EncodeXtExperts(encoder_, layout, jobs);
    if (!encoded.ok()) {
      const uint32_t last = batch.items[batch.count - 1].key.expert.value;
      return batch.count == 1
                 ? Name(encoded, batch.items[0].key)
                 : Annotate(encoded, absl::StrCat("layer ", batch.items[0].key.layer.value,
                                                  " experts up to ", last));
    }
    for (Item& item : std::span(batch.items).first(batch.count)) item.crc32c = Crc32c(item.blob);
    return absl::OkStatus();
  }

  absl::Status TakeEncoded(const Item& item) {
    HEARTH_RETURN_IF_ERROR(Take(item));
    result_.xt_stats.Add(item.stats);
    done_weights_ += item.stats.values;
    if (plan_.progress) {
      plan_.progress({.stage = "encoding experts",
                      .done_bytes = done_weights_,
                      .total_bytes = xt_weights_,
                      .counts_weights = true});
    }
    return absl::OkStatus();
  }

  // Reading and writing in order on one thread at a time, encoding on all.
  absl::Status EncodeLayer(LayerId layer) {
    const ExpertLayout& layout = plan_.layouts[layer.value];
    const uint64_t values = uint64_t{layout.hidden} * layout.width * 3;
    // Source values, rotated targets and errors, all fp32, and the blob.
    const uint64_t fitting =
        std::max<uint64_t>(1, 2 * kBatchBytesMax / (values * 12 + layout.blob_bytes()));
    const uint64_t wanted = plan_.device != nullptr
                                ? kExpertsPerDeviceCall * kDeviceCallsInFlight
                                : kExpertsInFlightMin + team_.worker_count() / kWorkersPerExpert;
    const auto experts = static_cast<uint32_t>(std::min(fitting, wanted));
    const uint32_t in_flight =
        plan_.device != nullptr ? std::min(experts, kDeviceCallsInFlight) : experts;
    std::vector<Batch> batches(in_flight);
    for (Batch& batch : batches) batch.items.resize(experts / in_flight);
    absl::Status failed;  // touched by the serial stages only, which the pipeline orders
    uint32_t next = 0;
    uint32_t next_batch = 0;
    const auto read = [&](tbb::flow_control& flow) -> Batch* {
      if (next == plan_.expert_count || stop_.load(std::memory_order_relaxed)) {
        flow.stop();
        return nullptr;
      }
      Batch& batch = batches[next_batch++ % in_flight];
      batch.count = std::min<size_t>(batch.items.size(), plan_.expert_count - next);
      for (Item& item : std::span(batch.items).first(batch.count)) {
        Read({layer, ExpertId(next++)}, item);
      }
      return &batch;
    };
    const auto encode = [&](Batch* batch) -> Batch* {
      batch->status = EncodeBatch(layout, *batch);
      return batch;
    };
    const auto take = [&](Batch* batch) {
      if (!failed.ok()) return;
      failed = batch->status;
      for (size_t i = 0; i < batch->count && failed.ok(); ++i) {
        failed = TakeEncoded(batch->items[i]);
      }
      if (!failed.ok()) stop_.store(true, std::memory_order_relaxed);
    };
    try {
      tbb::task_arena arena(static_cast<int>(team_.worker_count()));
      arena.execute([&] {
        tbb::parallel_pipeline(
            in_flight, tbb::make_filter<void, Batch*>(tbb::filter_mode::serial_in_order, read) &
                           tbb::make_filter<Batch*, Batch*>(tbb::filter_mode::parallel, encode) &
                           tbb::make_filter<Batch*, void>(tbb::filter_mode::serial_in_order, take));
      });
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("encoding experts: ", e.what()));
    }
    return failed;
  }

  // Fills the item's source and feedback, or its status.
  void Read(ExpertKey key, Item& item) const {
    item.key = key;
    item.status = plan_.read(key, item.source);
    if (!item.status.ok() || !plan_.feedback) return;
    absl::StatusOr<XtExpertFeedback> feedback = plan_.feedback(key);
    item.status = Name(feedback.status(), key);
    if (feedback.ok()) item.feedback = *std::move(feedback);
  }

  const ExpertWritePlan& plan_;
  WorkerTeam& team_;
  ExpertFileWriter writer_;
  const XtEncoder encoder_;
  ExpertWriteResult result_;
  uint64_t xt_weights_ = 0;
  uint64_t other_bytes_ = 0;
  uint64_t done_weights_ = 0;
  uint64_t done_bytes_ = 0;
  std::atomic<bool> stop_{false};
};

}  // namespace

absl::StatusOr<ExpertWriteResult> WriteExperts(const ExpertWritePlan& plan, WorkerTeam& team) {
  HEARTH_ASSIGN_OR_RETURN(
      ExpertFileWriter writer,
      ExpertFileWriter::Create(plan.dir, "experts.bin", plan.layouts, plan.expert_count));
  return ExpertsWriting(plan, team, std::move(writer)).Run();
}

}  // namespace hearth
