#include "runtime/backend/cuda/recorded_windows.h"

#include <algorithm>
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
                                                       const ExchangeForms& forms,
                                                       uint32_t rows_max) {
  return LayOutExchange({.layer_count = geometry.layer_count_with_mtp(),
                         .rows_max = rows_max,
                         .ranks = geometry.moe.experts_per_token,
                         .hidden = geometry.hidden,
                         .forms = forms,
                         .expert_count = geometry.moe.expert_count});
}

absl::StatusOr<std::unique_ptr<RecordedWindows>> RecordedWindows::Create(
    GpuId gpu, const ModelGeometry& geometry, const ExchangeForms& forms, uint32_t rows_max,
    int64_t wait_ns_max, Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(const ExchangeLayout layout, Layout(geometry, forms, rows_max));
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<WindowExchange> exchange,
      WindowExchange::Create(gpu, layout.shape, static_cast<uint64_t>(wait_ns_max), clock));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent passed, UniqueEvent::Create(gpu, EventKind::kUntimed));
  return std::unique_ptr<RecordedWindows>(
      new RecordedWindows(geometry, std::move(exchange), wait_ns_max, clock, std::move(passed)));
}

void RecordedWindows::set_recorder(GpuExpertRecorder* recorder) {
  recorder_ = recorder;
  ForgetGraphs();
}

void RecordedWindows::set_route_source(RouteSource* source) {
  source_ = source;
  ForgetGraphs();
}

void RecordedWindows::ForgetGraphs() {
  for (auto& kind : graphs_) {
    for (std::optional<UniqueGraph>& graph : kind) graph.reset();
  }
}

uint32_t* RecordedWindows::Replayed(std::byte* first, uint32_t layer) const {
  return reinterpret_cast<uint32_t*>(first) + size_t{layer} * exchange_->layout().entries_max();
}

// Before the window's launches. What was sent last has arrived: that window has ended.
absl::Status RecordedWindows::SendReplayed(const GpuPass& pass) {
  const uint64_t bytes =
      uint64_t{geometry_.layer_count()} * exchange_->layout().entries_max() * sizeof(uint32_t);
  if (!replayed_) {
    HEARTH_ASSIGN_OR_RETURN(replayed_, PinnedBuffer::Create(exchange_->gpu(), bytes));
    HEARTH_ASSIGN_OR_RETURN(replayed_on_card_, DeviceBuffer::Create(exchange_->gpu(), bytes));
  }
  for (uint32_t layer = 0; layer < geometry_.layer_count(); ++layer) {
    std::ranges::copy(source_->RoutesOf(LayerId(layer), pass.rows, geometry_.moe.experts_per_token),
                      Replayed(replayed_->data().data(), layer));
  }
  return CopyToDevice(replayed_->data(), *replayed_on_card_, 0, pass.stream);
}

absl::Status RecordedWindows::RecordLayer(const GpuPass& pass, uint32_t layer,
                                          const float* ngram_embed) {
  const GpuPassBuffers& b = pass.buffers;
  const LayerId id(layer);
  const bool replays = source_ != nullptr && !pass.draft;
  HEARTH_RETURN_IF_ERROR(EnqueueFirstHalf(pass, layer, ngram_embed));
  HEARTH_RETURN_IF_ERROR(LaunchPublish(
      *exchange_, id,
      {.router = RouterChoice(pass),
       .activation = SharedActivation(pass),
       .expert = replays ? Replayed(replayed_on_card_->data(), layer) : b.route_expert,
       .weight = b.route_weight,
       .u = {.q = b.u_q.q,
             .scale = b.u_q.scale,
             .sum16 = b.u_q.sum16,
             .rows = pass.rows,
             .cols = geometry_.hidden},
       .x = b.u,
       .rows = pass.rows},
      pass.stream));
  HEARTH_RETURN_IF_ERROR(EnqueueAfterActivation(pass, layer));
  if (recorder_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(recorder_->RecordExperts(id, pass.rows, exchange_->hits()));
  }
  if (TakesLate()) {
    HEARTH_RETURN_IF_ERROR(LaunchTakeLate(*exchange_, id, pass.rows, pass.stream));
    HEARTH_RETURN_IF_ERROR(recorder_->RecordExperts(id, pass.rows, exchange_->late()));
  }
  return EnqueueSecondHalf(pass, layer,
                           {.y = exchange_->host_output(id),
                            .on_card = exchange_->on_card(),
                            .wait = exchange_->output_wait(id)});
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
  if (source_ != nullptr && !pass.draft) HEARTH_RETURN_IF_ERROR(SendReplayed(pass));
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
  layer_ = LayerId();
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
  HEARTH_ASSIGN_OR_RETURN(const std::span<const uint32_t> expert,
                          host.AwaitRoutes(layer, rows_, clock_.NowNs() + wait_ns_max_));
  layer_ = layer;
  late_posted_ = false;
  const PublishedRows rows = host.Rows(layer, rows_);
  input_ = {.x = rows.x, .quantized = rows.quantized, .rows = rows_, .arrival = this};
  return Routes{.expert = expert,
                .weight = host.weights(),
                .rows = rows_,
                .ranks = geometry_.moe.experts_per_token};
}

absl::Status RecordedWindows::AwaitRows() {
  return exchange_->host().AwaitRows(layer_, rows_, clock_.NowNs() + wait_ns_max_).status();
}

absl::Status RecordedWindows::PostLate(LayerId layer, const ExpertList& list) {
  HEARTH_CHECK(TakesLate() && !late_posted_);
  late_posted_ = true;
  return exchange_->host().PostLate(layer, list);
}

absl::Status RecordedWindows::PostOutputs(LayerId layer) {
  if (exchange_->host().all_claimed()) return absl::OkStatus();
  if (TakesLate() && !late_posted_) HEARTH_RETURN_IF_ERROR(PostLate(layer, {}));
  exchange_->host().PostOutputs(layer);
  return absl::OkStatus();
}

void RecordedWindows::Abort() {
  if (under_way_) exchange_->host().Abort();
}

absl::Status RecordedWindows::End() {
  under_way_ = false;
  return exchange_->host().CardError();
}

// Routes of a layer come after the card has passed the layers before it, and a window begins after
// the one before has ended.
absl::Status RecordedWindows::AwaitPassed(LayerId layer) {
  if (!under_way_ || layer != layer_) return absl::OkStatus();
  return AwaitEvent(passed_, clock_, wait_ns_max_, "end of a window");
}

GpuListTimes RecordedWindows::Times(uint32_t window, LayerId layer) const {
  return ListTimes(exchange_->host(), window, layer, trace_ == nullptr ? nullptr : &card_clock_);
}

}  // namespace hearth
