#include "runtime/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/sampling/top_logits.h"
#include "runtime/backend/cuda/backend_plan.h"
#include "runtime/backend/cuda/cuda_imager.h"
#include "runtime/backend/cuda/cuda_sequence.h"
#include "runtime/backend/cuda/device_copy.h"
#include "runtime/backend/cuda/device_weights.h"
#include "runtime/backend/cuda/event_wait.h"
#include "runtime/backend/cuda/host_lookups.h"
#include "runtime/backend/cuda/layer_launches.h"
#include "runtime/backend/cuda/pass_table_image.h"
#include "runtime/backend/cuda/prompt_rows.h"
#include "runtime/backend/cuda/recorded_windows.h"
#include "runtime/backend/cuda/weight_upload.h"
#include "runtime/backend/pass_input.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// One array of a pass in the card's memory and where the host wants it.
struct Fetch {
  void* to;
  const void* from;
  uint64_t bytes;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaBackendDeps& deps, const CudaBackendOptions& options,
              const BackendPlan& plan, UniqueStream stream)
      : deps_(deps), options_(options), plan_(plan), stream_(std::move(stream)) {}

  absl::Status Allocate(const UploadProgress& progress);

  absl::StatusOr<std::unique_ptr<Sequence>> CreateSequence(uint32_t context_tokens_max) override;
  absl::Status BeginTrunk(std::span<const Segment> segments, Phase phase) override;
  absl::Status BeginDraft(Sequence& sequence, std::span<const TokenId> tokens,
                          DraftSource source) override;
  absl::StatusOr<Routes> FirstHalf(LayerId layer) override;
  ExpertInput expert_input() const override;
  absl::StatusOr<std::span<const uint32_t>> PredictExperts(LayerId layer) override;
  std::span<float> expert_output_buffer() override {
    if (recorded_) return windows_->output(layer_);
    return {host_.expert_output,
            uint64_t{plan_.shape.rows_max} * geometry().moe.experts_per_token * geometry().hidden};
  }
  const GpuExpertIo* gpu_expert_io() const override { return &*expert_io_; }
  void set_gpu_experts(GpuExpertRecorder* recorder) override {
    if (windows_ != nullptr) windows_->set_recorder(recorder);
  }
  void set_route_source(RouteSource* source) override {
    if (windows_ != nullptr) windows_->set_route_source(source);
  }
  void set_stepwise(bool stepwise) override { stepwise_ = stepwise; }
  absl::Status set_trace(WindowTrace* trace) override {
    if (windows_ == nullptr) return absl::OkStatus();
    HEARTH_RETURN_IF_ERROR(AwaitIdle());
    return windows_->set_trace(trace, stream());
  }
  absl::Status SecondHalf(LayerId layer, std::span<const float> expert_output) override;
  std::span<float> logits_buffer() override {
    return {host_.logits, uint64_t{kHeadRows} * geometry().vocab_count};
  }
  absl::Status Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) override;
  uint32_t top_logits_max() const override {
    return std::min(kTopLogitsMax, geometry().vocab_count);
  }
  absl::StatusOr<bool> HeadTop(uint32_t row_begin, uint32_t row_count, uint32_t count,
                               std::span<TopLogit> top) override;
  absl::Status Commit(Sequence& sequence, uint32_t row_count) override;
  absl::Status CommitDraft(Sequence& sequence) override;
  std::span<const float> residual() const override;
  uint32_t pass_rows() const override { return rows_; }
  SequenceImager& imager() override { return *imager_; }

 private:
  const ModelGeometry& geometry() const { return deps_.weights.geometry; }
  CudaStreamView stream() const { return stream_.view(); }
  // The card's address of pinned memory.
  template <class T>
  T* OnCard(T* host) const {
    return reinterpret_cast<T*>(host_device_base_ +
                                (reinterpret_cast<std::byte*>(host) - host_base_));
  }
  uint64_t entries() const { return uint64_t{rows_} * geometry().moe.experts_per_token; }

  absl::Status OpenSegments(std::span<const Segment> segments, Phase phase);
  void MakePass(uint32_t rows, bool window, bool draft, uint32_t last_position);
  absl::Status SendImage();
  absl::Status SendNgrams();
  absl::Status FetchAll(std::initializer_list<Fetch> fetches);
  absl::Status Await(std::string_view what);
  absl::Status AwaitIdle();
  absl::Status BeginPass();
  absl::StatusOr<Routes> LaunchFirstHalf(LayerId layer);
  absl::Status LaunchSecondHalf(LayerId layer);
  absl::Status KeepHidden();

  CudaBackendDeps deps_;
  CudaBackendOptions options_;
  BackendPlan plan_;
  UniqueStream stream_;
  std::unique_ptr<CudaImager> imager_;
  std::optional<UniqueEvent> done_;  // what the host waits for
  std::optional<UniqueStream> ahead_stream_;
  std::optional<UniqueEvent> ahead_done_;
  std::unique_ptr<PromptRows> prompt_rows_;
  std::optional<DeviceBuffer> weight_memory_;
  std::optional<DeviceBuffer> buffer_memory_;
  std::optional<PinnedBuffer> pinned_memory_;
  GpuModelWeights weights_;
  GpuPassBuffers buffers_;
  GpuPassBuffers ahead_buffers_;
  PassImage device_image_;
  PassImage host_image_;
  HostPassBuffers host_;
  std::byte* host_base_ = nullptr;         // the pinned memory...
  std::byte* host_device_base_ = nullptr;  // ...and the card's address of it
  std::optional<GpuExpertIo> expert_io_;
  std::unique_ptr<RecordedWindows> windows_;  // null: windows are launched layer by layer
  bool stepwise_ = false;

  // The pass at hand.
  std::optional<GpuPass> pass_;
  std::vector<CudaSequence*> sequences_;  // reserved
  std::vector<GpuSegment> segments_;      // reserved; as the card's table has them
  std::vector<uint64_t> ngram_rows_;      // reserved
  uint32_t rows_ = 0;
  LayerId layer_;
  bool recorded_ = false;
  bool complete_ = true;  // its last half layer is on its way
  bool draft_from_trunk_ = false;
  bool ngrams_left_ = false;             // their embeddings are still to be read and sent
  mutable std::vector<float> residual_;  // the last that was asked for
};

absl::Status CudaBackend::Allocate(const UploadProgress& progress) {
  const ModelGeometry& g = geometry();
  HEARTH_ASSIGN_OR_RETURN(done_, UniqueEvent::Create(options_.gpu, EventKind::kUntimed));
  HEARTH_ASSIGN_OR_RETURN(ahead_done_, UniqueEvent::Create(options_.gpu, EventKind::kUntimed));
  HEARTH_ASSIGN_OR_RETURN(ahead_stream_, UniqueStream::Create(options_.gpu, StreamPriority::kHigh));
  HEARTH_ASSIGN_OR_RETURN(prompt_rows_,
                          PromptRows::Create(options_.gpu, deps_.clock, options_.wait_ns_max));

  MemoryLayout device;
  ReservePassBuffers(device, buffers_, g, plan_.shape);
  ReserveAheadBuffers(device, ahead_buffers_, g, plan_.shape);
  ReservePassImage(device, device_image_, g, plan_.shape);
  absl::StatusOr<DeviceBuffer> buffers = DeviceBuffer::Create(options_.gpu, device.bytes());
  if (!buffers.ok()) return NoRoom(buffers.status(), "buffers of a pass", RoomFor::kBuffers);
  buffer_memory_ = *std::move(buffers);
  HEARTH_RETURN_IF_ERROR(FillBytes(*buffer_memory_, std::byte{0}, stream()));
  device.Place(buffer_memory_->data());
  ShareGemmRoom(buffers_, g, plan_.shape);
  ahead_buffers_.h = buffers_.h;

  MemoryLayout pinned;
  ReservePassImage(pinned, host_image_, g, plan_.shape);
  ReserveHostPassBuffers(pinned, host_, g, plan_.shape);
  absl::StatusOr<PinnedBuffer> memory = PinnedBuffer::Create(options_.gpu, pinned.bytes());
  if (!memory.ok()) return NoRoom(memory.status(), "pinned buffers", RoomFor::kBuffers);
  pinned_memory_ = *std::move(memory);
  host_base_ = pinned_memory_->data().data();
  host_device_base_ = pinned_memory_->device_data();
  pinned.Place(host_base_);

  const WeightImage image = PlanWeightImage(deps_.weights);
  absl::StatusOr<DeviceBuffer> weights =
      UploadWeights(image, options_.gpu, stream(), deps_.clock, progress);
  if (!weights.ok()) return NoRoom(weights.status(), "dense weights", RoomFor::kWeights);
  weight_memory_ = *std::move(weights);
  weights_ = PlaceWeights(deps_.weights, weight_memory_->data());

  const uint32_t ranks = g.moe.experts_per_token;
  expert_io_ = GpuExpertIo{.stream = stream(),
                           .u = {.q = buffers_.u_q.q,
                                 .scale = buffers_.u_q.scale,
                                 .sum16 = buffers_.u_q.sum16,
                                 .rows = plan_.shape.rows_max,
                                 .cols = g.hidden},
                           .u_rotated = {.q = buffers_.u_rotated_q,
                                         .scale = buffers_.u_rotated_scale,
                                         .sum = buffers_.u_rotated_sum,
                                         .rows = plan_.shape.rows_max,
                                         .cols = g.hidden},
                           .output = buffers_.expert_y,
                           .on_card = {host_.on_card, uint64_t{plan_.shape.rows_max} * ranks}};
  if (options_.recorded_windows) {
    HEARTH_ASSIGN_OR_RETURN(windows_, RecordedWindows::Create(options_.gpu, g, plan_.forms,
                                                              options_.limits.window_rows_max,
                                                              options_.wait_ns_max, deps_.clock));
    expert_io_->table = windows_.get();
  }
  HEARTH_ASSIGN_OR_RETURN(imager_, CudaImager::Create({g, deps_.clock, stream(), options_.kv_format,
                                                       options_.wait_ns_max}));
  sequences_.reserve(kPassSegmentsMax);
  segments_.reserve(kPassSegmentsMax);
  ngram_rows_.resize(uint64_t{plan_.shape.rows_max} * g.ngram.head_count());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sequence>> CudaBackend::CreateSequence(uint32_t context_tokens_max) {
  if (context_tokens_max == 0 || context_tokens_max > plan_.context_tokens_max) {
    return absl::InvalidArgumentError(absl::StrCat("context of ", context_tokens_max,
                                                   " tokens: this backend takes 1 to ",
                                                   plan_.context_tokens_max));
  }
  const SequenceShape shape = SequenceShapeOf(plan_, context_tokens_max);
  MemoryLayout layout;
  SequenceState state;
  ReserveSequenceState(layout, state, geometry(), shape);
  absl::StatusOr<DeviceBuffer> memory = DeviceBuffer::Create(options_.gpu, layout.bytes());
  if (!memory.ok()) {
    return NoRoom(memory.status(),
                  absl::StrCat("state of a sequence of ", context_tokens_max, " tokens"),
                  RoomFor::kSequence);
  }
  HEARTH_RETURN_IF_ERROR(FillBytes(*memory, std::byte{0}, stream()));
  layout.Place(memory->data());
  // From pageable memory: the copy has read it when the call returns.
  HEARTH_RETURN_IF_ERROR(
      CopyArray(state.layer_table, state.layers.data(), state.layers.size(), stream()));
  return std::make_unique<CudaSequence>(shape, *std::move(memory), std::move(state));
}

// All sequences or none.
absl::Status CudaBackend::OpenSegments(std::span<const Segment> segments, Phase phase) {
  sequences_.clear();
  segments_.clear();
  for (const Segment& segment : segments) {
    auto* sequence = static_cast<CudaSequence*>(segment.sequence);
    SequenceRows& rows = sequence->rows();
    const absl::Status status = rows.BeginPass(segment.tokens, phase);
    if (!status.ok()) {
      for (CudaSequence* opened : sequences_) (void)opened->rows().CommitPass(0);
      sequences_.clear();
      return status;
    }
    sequences_.push_back(sequence);
    segments_.push_back({.layers = sequence->state().layer_table,
                         .ngram_ring = sequence->state().ngram_ring,
                         .rows = static_cast<uint32_t>(segment.tokens.size()),
                         .base = rows.token_count(),
                         .pending_rows = rows.pending_rows(),
                         .parity = rows.parity()});
  }
  return absl::OkStatus();
}

void CudaBackend::MakePass(uint32_t rows, bool window, bool draft, uint32_t last_position) {
  rows_ = rows;
  *host_.nan_flag = 0;
  pass_.emplace(GpuPass{.geometry = geometry(),
                        .weights = weights_,
                        .buffers = buffers_,
                        .nan_flag = OnCard(host_.nan_flag),
                        .stream = stream(),
                        .qsa = plan_.qsa,
                        .qsa_plan = plan_.qsa_plan,
                        .table = {.segments = device_image_.segments,
                                  .row_segment = device_image_.row_segment,
                                  .segment_count = device_image_.segment_count,
                                  .rows = rows,
                                  .window_rows_max = options_.limits.window_rows_max,
                                  .ring_rows = plan_.ring_rows},
                        .rows = rows,
                        .window = window,
                        .draft = draft,
                        .choose_blocks = QsaMustSelect(geometry().attention, last_position)});
}

// The pass before is through, whatever became of it: its buffers and the image are free.
absl::Status CudaBackend::AwaitIdle() {
  const bool recorded = windows_ != nullptr && windows_->under_way();
  if (recorded && !complete_) windows_->Abort();
  HEARTH_RETURN_IF_ERROR(done_->Record(stream()));
  HEARTH_RETURN_IF_ERROR(Await("end of the pass before"));
  if (recorded) (void)windows_->End();
  return absl::OkStatus();
}

// The image is written; from here on the card works.
absl::Status CudaBackend::BeginPass() {
  recorded_ = windows_ != nullptr && pass_->window && !stepwise_;
  complete_ = false;
  expert_io_->lists = recorded_ ? windows_.get() : nullptr;
  if (recorded_) {
    return windows_->Begin(*pass_, device_image_.embed, device_image_.ngram_embed);
  }
  HEARTH_RETURN_IF_ERROR(EnqueueRotaryTables(*pass_));
  return pass_->draft ? EnqueueDraftInput(*pass_, device_image_.embed)
                      : EnqueueEmbedding(*pass_, device_image_.embed);
}

absl::Status CudaBackend::SendImage() {
  return CopyAsync(device_image_.segments, host_image_.segments,
                   ImageHeadBytes(host_image_, rows_, geometry().hidden), stream());
}

// Reads them first. A prompt's go while the card is at the layers before the one that wants them.
absl::Status CudaBackend::SendNgrams() {
  const NgramGeometry& n = geometry().ngram;
  const uint64_t floats = uint64_t{rows_} * n.embed_dim();
  ngrams_left_ = false;
  HEARTH_RETURN_IF_ERROR(ReadNgramRows(*deps_.ngram,
                                       std::span(ngram_rows_).first(size_t{rows_} * n.head_count()),
                                       deps_.team, {host_image_.ngram_embed, floats}));
  return CopyArray(device_image_.ngram_embed, host_image_.ngram_embed, floats, stream());
}

absl::Status CudaBackend::BeginTrunk(std::span<const Segment> segments, Phase phase) {
  HEARTH_RETURN_IF_ERROR(CheckTrunk(geometry(), options_.limits, segments, phase));
  if (segments.size() > kPassSegmentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pass over ", segments.size(), " sequences: at most ", kPassSegmentsMax));
  }
  HEARTH_RETURN_IF_ERROR(AwaitIdle());
  HEARTH_RETURN_IF_ERROR(OpenSegments(segments, phase));
  const uint32_t rows = WritePassTable(segments_, host_image_);
  uint32_t last_position = 0;
  for (const GpuSegment& s : segments_)
    last_position = std::max(last_position, s.base + s.rows - 1);
  MakePass(rows, phase == Phase::kWindow, false, last_position);
  float* embed = host_image_.embed;
  uint64_t* ngram_row = ngram_rows_.data();
  for (size_t s = 0; s < segments.size(); ++s) {
    EmbedPrompt(deps_.weights.embed_tokens, segments[s].tokens, deps_.team, embed);
    embed += segments[s].tokens.size() * geometry().hidden;
    ngram_row =
        HashNgrams(geometry().ngram, sequences_[s]->rows().tokens(), segments_[s].base, ngram_row);
  }
  HEARTH_RETURN_IF_ERROR(SendImage());
  ngrams_left_ = geometry().ngram.row_count != 0;
  if (ngrams_left_ && phase == Phase::kWindow) HEARTH_RETURN_IF_ERROR(SendNgrams());
  return BeginPass();
}

absl::Status CudaBackend::BeginDraft(Sequence& sequence, std::span<const TokenId> tokens,
                                     DraftSource source) {
  auto& s = static_cast<CudaSequence&>(sequence);
  const bool chained = source == DraftSource::kChained;
  const uint32_t base = chained ? s.rows().draft_position() : s.rows().draft_count();
  const auto rows = static_cast<uint32_t>(tokens.size());
  HEARTH_RETURN_IF_ERROR(CheckDraft(
      geometry(), {.tokens = tokens,
                   .source = source,
                   .base = base,
                   .context_tokens_max = s.context_tokens_max(),
                   .rows_max = plan_.shape.rows_max,
                   .has_head = weights_.mtp.has_value(),
                   .has_hidden = s.rows().HasHidden(base) && s.rows().HasHidden(base + rows - 1)}));
  HEARTH_RETURN_IF_ERROR(AwaitIdle());
  sequences_.assign(1, &s);
  segments_.assign(1, {.layers = s.state().layer_table, .rows = rows, .base = base});
  (void)WritePassTable(segments_, host_image_);
  MakePass(rows, rows <= options_.limits.window_rows_max, true, base + rows - 1);
  draft_from_trunk_ = !chained;
  s.rows().BeginDraftPass(base, rows);
  (void)EmbedTokens(deps_.weights.embed_tokens, tokens, host_image_.embed);
  HEARTH_RETURN_IF_ERROR(SendImage());
  const uint64_t d = geometry().stream_dim();
  if (chained) {
    HEARTH_RETURN_IF_ERROR(CopyArray(buffers_.draft_hidden, s.state().chain_hidden, d, stream()));
  } else {
    HEARTH_RETURN_IF_ERROR(LoadHidden(s, base, rows, {buffers_.draft_hidden, d}, stream()));
  }
  return BeginPass();
}

absl::Status CudaBackend::FetchAll(std::initializer_list<Fetch> fetches) {
  for (const Fetch& f : fetches) {
    HEARTH_RETURN_IF_ERROR(CopyAsync(f.to, f.from, f.bytes, stream()));
  }
  return done_->Record(stream());
}

absl::Status CudaBackend::Await(std::string_view what) {
  return AwaitEvent(*done_, deps_.clock, options_.wait_ns_max, what);
}

absl::StatusOr<Routes> CudaBackend::FirstHalf(LayerId layer) {
  layer_ = layer;
  if (!pass_->draft) {
    for (CudaSequence* sequence : sequences_) sequence->rows().StartPass();
  }
  absl::StatusOr<Routes> routes = recorded_ ? windows_->AwaitRoutes(layer) : LaunchFirstHalf(layer);
  if (!routes.ok()) {
    return Annotate(routes.status(), recorded_ ? "window" : absl::StrCat("layer ", layer.value));
  }
  if (*host_.nan_flag != 0) {
    return absl::DataLossError(
        absl::StrCat("layer ", layer.value,
                     ": a router score is not a number: the weights or the state are damaged"));
  }
  std::fill_n(host_.on_card, entries(), uint8_t{0});
  return routes;
}

absl::StatusOr<Routes> CudaBackend::LaunchFirstHalf(LayerId layer) {
  const ModelGeometry& g = geometry();
  if (ngrams_left_ && weights_.layer(layer.value).ngram) HEARTH_RETURN_IF_ERROR(SendNgrams());
  HEARTH_RETURN_IF_ERROR(EnqueueFirstHalf(*pass_, layer.value, device_image_.ngram_embed));
  HEARTH_RETURN_IF_ERROR(LaunchRouter(RouterChoice(*pass_), stream()));
  const GpuPassBuffers& b = buffers_;
  HEARTH_RETURN_IF_ERROR(
      FetchAll({{host_.route_expert, b.route_expert, entries() * sizeof(uint32_t)},
                {host_.route_weight, b.route_weight, entries() * sizeof(float)}}));
  HEARTH_RETURN_IF_ERROR(EnqueueBeforeExperts(*pass_, layer.value));
  if (ngrams_left_) HEARTH_RETURN_IF_ERROR(SendNgrams());
  HEARTH_RETURN_IF_ERROR(Await("router"));
  prompt_rows_->Offer({b.u, b.u_q}, {host_.u, host_.u_q}, rows_, g.hidden);
  return Routes{.expert = {host_.route_expert, entries()},
                .weight = {host_.route_weight, entries()},
                .rows = rows_,
                .ranks = g.moe.experts_per_token};
}

ExpertInput CudaBackend::expert_input() const {
  if (recorded_) return windows_->input();
  return {.x = host_.u,
          .quantized = {.q = host_.u_q.q,
                        .scale = host_.u_q.scale,
                        .sum16 = host_.u_q.sum16,
                        .rows = rows_,
                        .cols = geometry().hidden},
          .rows = rows_,
          .arrival = prompt_rows_.get()};
}

// Beside the pass, whose card may be waiting for the host: on a stream and in buffers of its own.
absl::StatusOr<std::span<const uint32_t>> CudaBackend::PredictExperts(LayerId layer) {
  HEARTH_RETURN_IF_ERROR(
      CheckPrediction(geometry(), pass_ && pass_->window && !pass_->draft, layer));
  const GpuPass ahead{.geometry = geometry(),
                      .weights = weights_,
                      .buffers = ahead_buffers_,
                      .nan_flag = OnCard(host_.ahead_nan_flag),
                      .stream = ahead_stream_->view(),
                      .qsa = plan_.qsa,
                      .qsa_plan = plan_.qsa_plan,
                      .table = pass_->table,
                      .rows = rows_};
  HEARTH_RETURN_IF_ERROR(EnqueueRouterAhead(ahead, layer.value));
  HEARTH_RETURN_IF_ERROR(
      CopyArray(host_.ahead_expert, ahead_buffers_.route_expert, entries(), ahead.stream));
  HEARTH_RETURN_IF_ERROR(ahead_done_->Record(ahead.stream));
  HEARTH_RETURN_IF_ERROR(
      AwaitEvent(*ahead_done_, deps_.clock, options_.wait_ns_max, "router ahead"));
  return std::span<const uint32_t>(host_.ahead_expert, entries());
}

absl::Status CudaBackend::LaunchSecondHalf(LayerId layer) {
  HostOutputs outputs;
  if (std::find(host_.on_card, host_.on_card + entries(), uint8_t{0}) !=
      host_.on_card + entries()) {
    outputs = {.y = OnCard(host_.expert_output), .on_card = OnCard(host_.on_card)};
  }
  return EnqueueSecondHalf(*pass_, layer.value, outputs);
}

absl::Status CudaBackend::SecondHalf(LayerId layer, std::span<const float> expert_output) {
  const std::span<float> own = expert_output_buffer();
  if (expert_output.data() != own.data()) {
    const uint64_t floats = entries() * geometry().hidden;
    HEARTH_CHECK(expert_output.size() >= floats);
    std::copy_n(expert_output.begin(), floats, own.begin());
  }
  HEARTH_RETURN_IF_ERROR(
      Annotate(recorded_ ? windows_->PostOutputs(layer) : LaunchSecondHalf(layer),
               absl::StrCat("layer ", layer.value)));
  complete_ = pass_->draft || layer.value + 1 == geometry().layer_count();
  if (!complete_) return absl::OkStatus();
  if (!pass_->draft) return KeepHidden();
  const uint64_t d = geometry().stream_dim();
  return CopyArray(sequences_[0]->state().chain_hidden, buffers_.h + (rows_ - 1) * d, d, stream());
}

absl::Status CudaBackend::KeepHidden() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const GpuSegment& s = host_image_.segments[i];
    const uint64_t d = geometry().stream_dim();
    float* const rows = buffers_.h + s.row_begin * d;
    HEARTH_RETURN_IF_ERROR(StoreHidden(*sequences_[i], s.base, s.rows, {rows, d}, stream()));
    sequences_[i]->rows().FinishPass();
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) {
  const uint64_t vocab = geometry().vocab_count;
  HEARTH_CHECK(row_begin + row_count <= rows_);
  HEARTH_CHECK(logits.size() >= row_count * vocab);
  const std::span<float> own = logits_buffer();
  const bool direct =
      std::less_equal<>()(own.data(), logits.data()) &&
      std::less_equal<>()(logits.data() + row_count * vocab, own.data() + own.size());
  for (uint32_t done = 0; done < row_count;) {
    const uint32_t rows = std::min(row_count - done, kHeadRows);
    float* const to = logits.data() + done * vocab;
    float* const pinned = direct ? to : own.data();
    HEARTH_RETURN_IF_ERROR(EnqueueHead(*pass_, row_begin + done, rows));
    HEARTH_RETURN_IF_ERROR(FetchAll({{pinned, buffers_.logits, rows * vocab * sizeof(float)}}));
    HEARTH_RETURN_IF_ERROR(Await("head"));
    if (recorded_ && windows_->under_way()) HEARTH_RETURN_IF_ERROR(windows_->End());
    if (!direct) std::copy_n(pinned, rows * vocab, to);
    done += rows;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaBackend::HeadTop(uint32_t row_begin, uint32_t row_count, uint32_t count,
                                          std::span<TopLogit> top) {
  HEARTH_CHECK(row_begin + row_count <= rows_);
  HEARTH_CHECK(count <= top_logits_max() && top.size() >= uint64_t{row_count} * count);
  bool exact = true;
  for (uint32_t done = 0; done < row_count && exact;) {
    const uint32_t rows = std::min(row_count - done, kHeadRows);
    const uint64_t tops = uint64_t{rows} * count;
    HEARTH_RETURN_IF_ERROR(EnqueueHead(*pass_, row_begin + done, rows));
    HEARTH_RETURN_IF_ERROR(LaunchTopLogits({.logits = buffers_.logits,
                                            .rows = rows,
                                            .vocab_count = geometry().vocab_count,
                                            .count = count,
                                            .top = buffers_.top,
                                            .exact = buffers_.top_exact,
                                            .workspace = buffers_.top_workspace},
                                           stream()));
    HEARTH_RETURN_IF_ERROR(
        FetchAll({{host_.top, buffers_.top, tops * sizeof(TopLogit)},
                  {host_.top_exact, buffers_.top_exact, rows * sizeof(uint32_t)}}));
    HEARTH_RETURN_IF_ERROR(Await("head"));
    if (recorded_ && windows_->under_way()) HEARTH_RETURN_IF_ERROR(windows_->End());
    std::copy_n(host_.top, tops, top.begin() + uint64_t{done} * count);
    exact = std::count(host_.top_exact, host_.top_exact + rows, 1u) == rows;
    done += rows;
  }
  return exact;
}

absl::Status CudaBackend::Commit(Sequence& sequence, uint32_t row_count) {
  return static_cast<CudaSequence&>(sequence).rows().CommitPass(row_count);
}

absl::Status CudaBackend::CommitDraft(Sequence& sequence) {
  HEARTH_RETURN_IF_ERROR(CheckDraftKept(draft_from_trunk_));
  static_cast<CudaSequence&>(sequence).rows().CommitDraftPass();
  return absl::OkStatus();
}

std::span<const float> CudaBackend::residual() const {
  if (recorded_ && !complete_) return {};  // the card may be writing it
  residual_.resize(uint64_t{rows_} * geometry().stream_dim());
  // Pageable memory: the copy has ended when the call returns, or the stream has failed, which the
  // next wait reports.
  const absl::Status copied =
      CopyArray(residual_.data(), buffers_.h, residual_.size(), stream_.view());
  if (!copied.ok() || !stream_.Synchronize().ok()) residual_.assign(residual_.size(), 0.0f);
  return residual_;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendDeps& deps,
                                                           const CudaBackendOptions& options,
                                                           const UploadProgress& progress) {
  if (options.arithmetic != Arithmetic::kFast) {
    return absl::UnimplementedError(
        "reference arithmetic on a card: use the CPU backend for it (--device cpu)");
  }
  const ModelGeometry& g = deps.weights.geometry;
  HEARTH_RETURN_IF_ERROR(CheckNgramTable(g, deps.ngram != nullptr));
  HEARTH_ASSIGN_OR_RETURN(const BackendPlan plan, PlanBackend(g, options));
  HEARTH_ASSIGN_OR_RETURN(UniqueStream stream,
                          UniqueStream::Create(options.gpu, StreamPriority::kHigh));
  auto backend = std::make_unique<CudaBackend>(deps, options, plan, std::move(stream));
  HEARTH_RETURN_IF_ERROR(backend->Allocate(progress));
  return backend;
}

}  // namespace hearth
