// A card with experts in its slots, for tests: a RAM tier of random experts in one piece of memory,
// rows that the card reads as a backend would leave them there, and the outputs of both sides
// combined entry by entry.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/experts/bounded_wait.h"
#include "runtime/experts/cuda_card.h"
#include "runtime/experts/cuda_slots.h"
#include "runtime/experts/expert_tiers.h"
#include "tests/cpu_kernels/expert_blob.h"
#include "tests/cpu_kernels/xt_blob.h"
#include "tests/support/store_pool.h"

namespace hearth {

struct RandomModel {
  uint32_t hidden = 256;
  uint32_t width = 64;
  uint32_t expert_count = 24;
  uint32_t ranks = 4;
  std::vector<ExpertFormat> formats = {ExpertFormat::kNvfp4, ExpertFormat::kXt,
                                       ExpertFormat::kNvfp4};
  uint64_t seed = 1;
  uint32_t distinct_count = 0;  // the others repeat these; 0: every expert is another
  bool keeps_in_place = false;  // what the store says of itself
};

// Every expert in RAM, in one mapping, as the RAM tiers have them.
class RandomStore final : public ExpertStore {
 public:
  explicit RandomStore(const RandomModel& model) : model_(model) {
    Prng prng(model.seed);
    std::vector<std::vector<std::byte>> blobs;
    for (const ExpertFormat format : model.formats) {
      for (uint32_t e = 0; e < model.expert_count; ++e) {
        if (model.distinct_count != 0 && e >= model.distinct_count) {
          blobs.push_back(blobs[blobs.size() - model.distinct_count]);
        } else if (format == ExpertFormat::kXt) {
          const XtBlob blob = XtBlob::Random(&prng, model.hidden, model.width, {3, 3, 3});
          if (e == 0) layouts_.push_back(blob.layout());
          blobs.emplace_back(blob.data(), blob.data() + blob.layout().blob_bytes());
        } else {
          const ExpertBlob blob = ExpertBlob::Random(&prng, format, model.hidden, model.width);
          if (e == 0) layouts_.push_back(blob.layout());
          blobs.emplace_back(blob.data(), blob.data() + blob.layout().blob_bytes());
        }
      }
    }
    uint64_t bytes = 0;
    for (const ExpertLayout& layout : layouts_) {
      offsets_.push_back(bytes);
      bytes += model.expert_count * layout.stride_bytes();
    }
    memory_ = *AnonymousMapping::Create(bytes);
    for (size_t i = 0; i < blobs.size(); ++i) {
      const auto layer = static_cast<uint32_t>(i / model.expert_count);
      const auto expert = static_cast<uint32_t>(i % model.expert_count);
      std::ranges::copy(blobs[i], At({LayerId(layer), ExpertId(expert)}).begin());
    }
  }
  uint32_t layer_count() const override { return static_cast<uint32_t>(layouts_.size()); }
  uint32_t expert_count() const override { return model_.expert_count; }
  const ExpertLayout& layout(LayerId layer) const override { return layouts_[layer.value]; }
  bool keeps_in_place() const override { return model_.keeps_in_place; }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override { return MakeLease(0, At(key)); }
  std::vector<StoreMemory> memory() const override {
    return {{.bytes = memory_.data(), .keep_mapped = nullptr}};
  }
  std::span<std::byte> At(ExpertKey key) const {
    const ExpertLayout& layout = layouts_[key.layer.value];
    return memory_.data().subspan(
        offsets_[key.layer.value] + key.expert.value * layout.stride_bytes(), layout.blob_bytes());
  }
  const std::vector<ExpertLayout>& layouts() const { return layouts_; }

 private:
  void Release(uint64_t) override {}
  const RandomModel model_;
  std::vector<ExpertLayout> layouts_;
  std::vector<uint64_t> offsets_;
  AnonymousMapping memory_{*AnonymousMapping::Create(0)};
};

// The rows of one pass on the host, quantised both ways, and their routes.
struct RandomRows {
  uint32_t rows = 0;
  std::vector<float> x;
  std::vector<int8_t> q, xt_q;
  std::vector<float> scale, xt_scale;
  std::vector<int32_t> sum16, xt_sum;
  std::vector<uint32_t> routes;

  RandomRows(const RandomModel& model, uint32_t rows_in, uint64_t seed, const CpuKernels& kernels)
      : rows(rows_in) {
    Prng prng(seed);
    const size_t blocks = ActivationBlocks(model.hidden);
    x.resize(size_t{rows} * model.hidden);
    for (float& v : x) v = static_cast<float>(prng.Uniform() * 2 - 1);
    q.resize(rows * blocks * kActivationBlockValues);
    scale.resize(rows * blocks);
    sum16.resize(rows * blocks * 2);
    kernels.quantize_rows.fn({.x = x.data(),
                              .x_stride = model.hidden,
                              .rows = rows,
                              .cols = model.hidden,
                              .q = q.data(),
                              .scale = scale.data(),
                              .sum16 = sum16.data()});
    xt_q.resize(size_t{rows} * model.hidden);
    xt_scale.resize(rows);
    xt_sum.resize(rows);
    std::vector<float> scratch(model.hidden);
    kernels.rotate_quantize_rows.fn({.x = x.data(),
                                     .x_stride = model.hidden,
                                     .rows = rows,
                                     .cols = model.hidden,
                                     .scratch = scratch.data(),
                                     .q = xt_q.data(),
                                     .scale = xt_scale.data(),
                                     .sum = xt_sum.data()});
    for (uint32_t r = 0; r < rows; ++r) {
      while (routes.size() < size_t{r + 1} * model.ranks) {
        const double u = prng.Uniform();
        const auto expert = static_cast<uint32_t>(u * u * model.expert_count);
        const auto begin = routes.begin() + static_cast<ptrdiff_t>(r * model.ranks);
        if (std::find(begin, routes.end(), expert) == routes.end()) routes.push_back(expert);
      }
    }
  }
  ExpertRows Input(uint32_t hidden) const {
    return {.x = x.data(),
            .quantized = {.q = q.data(),
                          .scale = scale.data(),
                          .sum16 = sum16.data(),
                          .rows = rows,
                          .cols = hidden},
            .rows = rows};
  }
};

struct CudaRigOptions {
  RandomModel model;
  uint32_t rows_max = 40;
  SlotBudget budget = {.share = 0.5};
  double pcie_share = 0.5;
  bool pins = true;
  uint32_t arrivals_max = 8;
  CudaSlotsOptions slots = {.verify_uploads = true};
};

class CudaRig {
 public:
  CudaRig(const GpuInfo& gpu, const CudaRigOptions& options)
      : options_(options),
        gpu_(gpu),
        kernels_(SelectCpuKernels(DetectCpuFeatures())),
        store_(options.model),
        team_(2) {}
  virtual ~CudaRig() = default;

  absl::Status Make() {
    const RandomModel& m = options_.model;
    if (options_.pins) {
      pinned_ =
          PinnedRanges::Create(store_.memory(), 1_MiB, PinnedRanges::PinFor(gpu_.id), nullptr);
      if (pinned_.bytes() == 0) return absl::InternalError(pinned_.notes().front());
    }
    SlotCacheOptions cache{.expert_count = m.expert_count, .budget = options_.budget};
    for (const ExpertLayout& layout : store_.layouts()) {
      cache.blob_bytes.push_back(layout.stride_bytes());
    }
    HEARTH_ASSIGN_OR_RETURN(cache_, SlotCache::Create(cache));
    HEARTH_ASSIGN_OR_RETURN(device_,
                            CudaSlots::Create({.gpu = gpu_, .pinned = pinned_, .clock = clock_},
                                              cache_->pools(), options_.slots));
    HEARTH_RETURN_IF_ERROR(MakeIo());
    HEARTH_RETURN_IF_ERROR(MakeTable());
    HEARTH_ASSIGN_OR_RETURN(
        card_, CudaCard::Create({.layouts = store_.layouts(),
                                 .slots = *device_,
                                 .gpu = gpu_,
                                 .io = *io_,
                                 .clock = clock_},
                                {.rows_max = options_.rows_max,
                                 .ranks = m.ranks,
                                 .expert_count = m.expert_count,
                                 .arrivals_max = options_.arrivals_max,
                                 .takes_late = !m.keeps_in_place && options_.pcie_share != 0}));
    const ExpertPool::Options pool{.rows_max = options_.rows_max, .ranks = m.ranks};
    HEARTH_ASSIGN_OR_RETURN(pool_, ExpertPool::Create({.layouts = store_.layouts(),
                                                       .expert_count = m.expert_count,
                                                       .kernels = kernels_,
                                                       .team = team_,
                                                       .clock = clock_},
                                                      pool));
    HEARTH_ASSIGN_OR_RETURN(truth_, StorePool::Create(store_, kernels_, team_, pool));
    output_.resize(size_t{options_.rows_max} * m.ranks * m.hidden);
    tiers_ =
        std::make_unique<ExpertTiers>(ExpertTiers::Deps{.store = store_,
                                                        .pool = *pool_,
                                                        .clock = clock_,
                                                        .slots = cache_.get(),
                                                        .device = device_.get(),
                                                        .card = card_.get()},
                                      ExpertTiersOptions{.rows_max = options_.rows_max,
                                                         .ranks = m.ranks,
                                                         .pcie_share = options_.pcie_share,
                                                         .promotions_max = options_.arrivals_max});
    return absl::OkStatus();
  }

  // One layer; the outputs of both sides, entry by entry, must be the pool's, bit for bit.
  void RunChecked(LayerId layer, uint32_t rows, uint64_t seed, TrafficKind kind) {
    const RandomModel& m = options_.model;
    const RandomRows r(m, rows, seed, kernels_);
    const RouteInput routes{
        .expert = r.routes, .rows = rows, .ranks = m.ranks, .expert_count = m.expert_count};
    const ExpertRows input = r.Input(m.hidden);
    WindowPlan plan;
    GroupRoutes(routes, plan);
    std::vector<float> expected(r.routes.size() * m.hidden);
    ASSERT_TRUE(truth_->Run(layer, plan, input, expected).ok());
    PutRows(r);
    std::ranges::fill(output_, -1.0f);
    const absl::Status begun = BeginPass(layer, r);
    ASSERT_TRUE(begun.ok()) << begun;
    const absl::Status status = tiers_->RunLayer(layer, routes, input, kind, output_, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    EndPass(layer);
    tiers_->EndLayer();
    ASSERT_TRUE(AwaitFor(clock_, 3'000'000'000, [&] { return stream_->HasEnded().value_or(true); }))
        << "layer " << layer.value << " of " << rows << " rows: the card does not end";
    std::vector<float> got(expected.size());
    ASSERT_TRUE(CopyToHost(*y_, 0, std::as_writable_bytes(std::span(got)), stream_->view()).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    const absl::Status read = CheckPass();
    ASSERT_TRUE(read.ok()) << read;
    uint32_t on_card_count = 0;
    for (size_t entry = 0; entry < r.routes.size(); ++entry) {
      const size_t at = entry * m.hidden;
      if (io_->on_card[entry] != 0) {
        ++on_card_count;
        ASSERT_EQ(output_[at], -1.0f) << "computed twice";
      } else {
        std::copy_n(output_.begin() + static_cast<ptrdiff_t>(at), m.hidden,
                    got.begin() + static_cast<ptrdiff_t>(at));
      }
      ASSERT_EQ(std::memcmp(&got[at], &expected[at], m.hidden * sizeof(float)), 0)
          << "layer " << layer.value << " row " << entry / m.ranks << " rank " << entry % m.ranks
          << (io_->on_card[entry] != 0 ? " of the card" : " of the pool");
    }
    on_card_count_ += on_card_count;
  }
  // One layer of a prompt, unchecked: the host's time for it.
  absl::StatusOr<int64_t> RunTimed(LayerId layer, uint32_t rows, uint64_t seed) {
    const RandomModel& m = options_.model;
    const RandomRows r(m, rows, seed, kernels_);
    PutRows(r);
    const RouteInput routes{
        .expert = r.routes, .rows = rows, .ranks = m.ranks, .expert_count = m.expert_count};
    const int64_t begin_ns = clock_.NowNs();
    HEARTH_RETURN_IF_ERROR(
        tiers_->RunLayer(layer, routes, r.Input(m.hidden), TrafficKind::kPrompt, output_, nullptr));
    const int64_t ns = clock_.NowNs() - begin_ns;
    HEARTH_RETURN_IF_ERROR(stream_->Synchronize());
    return ns;
  }
  uint64_t distinct(Service service) const { return tiers_->ledger().total().of(service).distinct; }
  int64_t ns(Service service) const { return tiers_->ledger().total().of(service).ns; }

  ExpertTiers& tiers() { return *tiers_; }
  SlotCache& cache() { return *cache_; }
  CudaSlots& device() { return *device_; }
  RandomStore& store() { return store_; }
  uint64_t on_card_count() const { return on_card_count_; }

 protected:
  // What a backend does around a layer's experts; nothing where it launches layer by layer.
  virtual absl::Status MakeTable() { return absl::OkStatus(); }  // into io(), before the card
  virtual absl::Status BeginPass(LayerId, const RandomRows&) { return absl::OkStatus(); }
  virtual void EndPass(LayerId) {}
  virtual absl::Status CheckPass() { return absl::OkStatus(); }
  CudaCard& card() { return *card_; }
  GpuExpertIo& io() { return *io_; }
  SteadyClock& clock() { return clock_; }
  std::span<uint8_t> on_card() { return on_card_; }

 private:
  absl::Status MakeIo() {
    const RandomModel& m = options_.model;
    const uint64_t rows = options_.rows_max;
    const uint64_t blocks = ActivationBlocks(m.hidden);
    HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu_.id));
    stream_.emplace(std::move(stream));
    const auto make = [&](std::optional<DeviceBuffer>& to, uint64_t bytes) -> absl::Status {
      HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(gpu_.id, bytes));
      to.emplace(std::move(buffer));
      return FillBytes(*to, std::byte{0xFF}, stream_->view());
    };
    HEARTH_RETURN_IF_ERROR(make(q_, rows * blocks * kActivationBlockValues));
    HEARTH_RETURN_IF_ERROR(make(scale_, rows * blocks * sizeof(float)));
    HEARTH_RETURN_IF_ERROR(make(sum16_, rows * blocks * 2 * sizeof(int32_t)));
    HEARTH_RETURN_IF_ERROR(make(xt_q_, rows * m.hidden));
    HEARTH_RETURN_IF_ERROR(make(xt_scale_, rows * sizeof(float)));
    HEARTH_RETURN_IF_ERROR(make(xt_sum_, rows * sizeof(int32_t)));
    HEARTH_RETURN_IF_ERROR(make(y_, rows * m.ranks * m.hidden * sizeof(float)));
    on_card_.resize(rows * m.ranks);
    const auto floats = [](const DeviceBuffer& b) { return reinterpret_cast<float*>(b.data()); };
    const auto words = [](const DeviceBuffer& b) { return reinterpret_cast<int32_t*>(b.data()); };
    io_.emplace(GpuExpertIo{.stream = stream_->view(),
                            .u = {.q = reinterpret_cast<int8_t*>(q_->data()),
                                  .scale = floats(*scale_),
                                  .sum16 = words(*sum16_),
                                  .rows = options_.rows_max,
                                  .cols = m.hidden},
                            .u_rotated = {.q = reinterpret_cast<int8_t*>(xt_q_->data()),
                                          .scale = floats(*xt_scale_),
                                          .sum = words(*xt_sum_),
                                          .rows = options_.rows_max,
                                          .cols = m.hidden},
                            .output = floats(*y_),
                            .on_card = on_card_});
    return absl::OkStatus();
  }
  // As FirstHalf of a backend leaves them.
  void PutRows(const RandomRows& r) {
    const auto put = [&](const DeviceBuffer& to, const auto& from) {
      HEARTH_CHECK(CopyToDevice(std::as_bytes(std::span(from)), to, 0, stream_->view()).ok());
    };
    put(*q_, r.q);
    put(*scale_, r.scale);
    put(*sum16_, r.sum16);
    put(*xt_q_, r.xt_q);
    put(*xt_scale_, r.xt_scale);
    put(*xt_sum_, r.xt_sum);
    HEARTH_CHECK(FillBytes(*y_, std::byte{0xFF}, stream_->view()).ok());
    HEARTH_CHECK(stream_->Synchronize().ok());
    std::ranges::fill(on_card_, uint8_t{0});
  }

  const CudaRigOptions options_;
  const GpuInfo gpu_;
  const CpuKernels& kernels_;
  SteadyClock clock_;
  RandomStore store_;
  WorkerTeam team_;
  PinnedRanges pinned_;
  std::optional<UniqueStream> stream_;
  std::optional<DeviceBuffer> q_, scale_, sum16_, xt_q_, xt_scale_, xt_sum_, y_;
  std::vector<uint8_t> on_card_;
  std::optional<GpuExpertIo> io_;
  std::unique_ptr<SlotCache> cache_;
  std::unique_ptr<CudaSlots> device_;
  std::unique_ptr<CudaCard> card_;
  std::unique_ptr<ExpertPool> pool_;
  std::unique_ptr<StorePool> truth_;
  std::vector<float> output_;
  uint64_t on_card_count_ = 0;
  std::unique_ptr<ExpertTiers> tiers_;  // last: uses all of the above
};

}  // namespace hearth
