#include "runtime/backend/cuda/recorded_windows.h"

#include <utility>

#include "runtime/backend/cuda/event_wait.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

uint32_t KindOf(const GpuPass& pass) {
  return (pass.draft ? 2u : 0u) + (pass.choose_blocks ? 1u : 0u);
}

}  // namespace

absl::StatusOr<ExchangeLayout> RecordedWindows::Layout(const ModelGeometry& geometry,
                                                       uint32_t rows_max) {
  return LayOutExchange({.layer_count = geometry.layer_count_with_mtp(),
                         .rows_max = rows_max,
                         .ranks = geometry.moe.experts_per_token,
                         .hidden = geometry.hidden,
                         .forms = {.quantized = true, .fp32 = true}});
}

absl::StatusOr<std::unique_ptr<RecordedWindows>> RecordedWindows::Create(
    GpuId gpu, const ModelGeometry& geometry, uint32_t rows_max, int64_t wait_ns_max,
    Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(const ExchangeLayout layout, Layout(geometry, rows_max));
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<WindowExchange> exchange,
      WindowExchange::Create(gpu, layout.shape, static_cast<uint64_t>(wait_ns_max), clock));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent passed, UniqueEvent::Create(gpu, EventKind::kUntimed));
  return std::unique_ptr<RecordedWindows>(
      new RecordedWindows(geometry, std::move(exchange), wait_ns_max, clock, std::move(passed)));
}

void RecordedWindows::set_recorder(GpuExpertRecorder* recorder) {
  recorder_ = recorder;
  for (auto& kind : graphs_) {
    for (std::optional<UniqueGraph>& graph : kind) graph.reset();
  }
}

absl::Status RecordedWindows::RecordLayer(const GpuPass& pass, uint32_t layer,
                                          const float* ngram_embed) {
  const GpuPassBuffers& b = pass.buffers;
  const LayerId id(layer);
  HEARTH_RETURN_IF_ERROR(EnqueueFirstHalf(pass, layer, ngram_embed));
  HEARTH_RETURN_IF_ERROR(LaunchPublish(*exchange_, id,
                                       {.expert = b.route_expert,
                                        .weight = b.route_weight,
                                        .u = {.q = b.u_q.q,
                                              .scale = b.u_q.scale,
                                              .sum16 = b.u_q.sum16,
                                              .rows = pass.rows,
                                              .cols = geometry_.hidden},
                                        .x = b.u,
                                        .rows = pass.rows},
                                       pass.stream));
  HEARTH_RETURN_IF_ERROR(EnqueueBeforeExperts(pass, layer));
  HEARTH_RETURN_IF_ERROR(LaunchTakeHits(*exchange_, id, pass.rows, pass.stream));
  if (recorder_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(recorder_->RecordExperts(id, pass.rows, exchange_->hits()));
  }
  HEARTH_RETURN_IF_ERROR(LaunchTakeLate(*exchange_, id, pass.rows, pass.stream));
  if (recorder_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(recorder_->RecordExperts(id, pass.rows, exchange_->late()));
  }
  HEARTH_RETURN_IF_ERROR(LaunchAwaitOutputs(*exchange_, id, pass.stream));
  return EnqueueSecondHalf(pass, layer,
                           {.y = exchange_->host_output(id), .on_card = exchange_->on_card()});
}

absl::Status RecordedWindows::Record(const GpuPass& pass, const float* embed,
                                     const float* ngram_embed) {
  HEARTH_RETURN_IF_ERROR(LaunchBeginWindow(*exchange_, pass.stream));
  HEARTH_RETURN_IF_ERROR(EnqueueRotaryTables(pass));
  if (pass.draft) {
    HEARTH_RETURN_IF_ERROR(EnqueueDraftInput(pass, embed));
    return RecordLayer(pass, geometry_.layer_count(), nullptr);
  }
  HEARTH_RETURN_IF_ERROR(EnqueueEmbedding(pass, embed));
  for (uint32_t layer = 0; layer < geometry_.layer_count(); ++layer) {
    HEARTH_RETURN_IF_ERROR(RecordLayer(pass, layer, ngram_embed));
  }
  return absl::OkStatus();
}

absl::Status RecordedWindows::Begin(const GpuPass& pass, const float* embed,
                                    const float* ngram_embed) {
  HEARTH_CHECK(!under_way_ && pass.window);
  std::optional<UniqueGraph>& graph = graphs_[KindOf(pass)][pass.rows];
  if (!graph) {
    HEARTH_ASSIGN_OR_RETURN(graph, UniqueGraph::Capture(pass.stream, [&](CudaStreamView) {
                              return Record(pass, embed, ngram_embed);
                            }));
  }
  TraceEnded();
  to_be_traced_ = trace_ != nullptr;
  was_draft_ = pass.draft;
  (void)exchange_->host().BeginWindow();
  rows_ = pass.rows;
  hits_posted_ = outputs_follow_ = false;
  HEARTH_RETURN_IF_ERROR(graph->Launch(pass.stream));
  under_way_ = true;
  return passed_.Record(pass.stream);
}

void RecordedWindows::TraceEnded() {
  if (!std::exchange(to_be_traced_, false)) return;
  const ExchangeHost& host = exchange_->host();
  const uint32_t trunk = geometry_.layer_count();
  AddCardSpans(host, host.sequence(), was_draft_ ? trunk : 0, was_draft_ ? trunk + 1 : trunk,
               card_clock_, 0, trace_);
}

absl::Status RecordedWindows::set_trace(WindowTrace* trace, CudaStreamView stream) {
  TraceEnded();
  trace_ = trace;
  if (trace == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(card_clock_, MeasureCardClock(stream, clock_));
  return absl::OkStatus();
}

absl::StatusOr<Routes> RecordedWindows::AwaitRoutes(LayerId layer) {
  ExchangeHost& host = exchange_->host();
  hits_posted_ = false;
  const int64_t deadline_ns = clock_.NowNs() + wait_ns_max_;
  HEARTH_ASSIGN_OR_RETURN(const std::span<const uint32_t> expert,
                          host.AwaitRoutes(layer, rows_, deadline_ns));
  HEARTH_ASSIGN_OR_RETURN(const PublishedRows rows, host.AwaitRows(layer, rows_, deadline_ns));
  input_ = {.x = rows.x, .quantized = rows.quantized, .rows = rows_};
  return Routes{.expert = expert,
                .weight = {rows.weight, expert.size()},
                .rows = rows_,
                .ranks = geometry_.moe.experts_per_token};
}

absl::Status RecordedWindows::PostHits(LayerId layer, const ExpertList& list,
                                       const ExchangeFollows& follows) {
  HEARTH_CHECK(!hits_posted_);
  HEARTH_RETURN_IF_ERROR(exchange_->host().PostHits(layer, list, follows));
  hits_posted_ = true;
  outputs_follow_ = follows.outputs;
  return absl::OkStatus();
}

absl::Status RecordedWindows::PostLate(LayerId layer, const ExpertList& list) {
  return exchange_->host().PostLate(layer, list);
}

absl::Status RecordedWindows::PostOutputs(LayerId layer) {
  if (!hits_posted_) HEARTH_RETURN_IF_ERROR(PostHits(layer, {}, {.outputs = true}));
  if (outputs_follow_) exchange_->host().PostOutputs(layer);
  return absl::OkStatus();
}

void RecordedWindows::Abort() {
  if (under_way_) exchange_->host().Abort();
}

absl::Status RecordedWindows::End() {
  under_way_ = false;
  return exchange_->host().CardError();
}

// Routes of a layer come after the card has passed the layers before it, so until the hits of the
// layer at hand are posted only layers that have been passed can be asked for.
absl::Status RecordedWindows::AwaitPassed(LayerId) {
  if (!under_way_ || !hits_posted_) return absl::OkStatus();
  return AwaitEvent(passed_, clock_, wait_ns_max_, "end of a window");
}

GpuListTimes RecordedWindows::Times(uint32_t window, LayerId layer) const {
  return ListTimes(exchange_->host(), window, layer);
}

}  // namespace hearth
