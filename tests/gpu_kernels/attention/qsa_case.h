// What the tests and the benchmark of gpu_kernels/ops/attention/qsa.h share: sequences with a past
// and rows to come on the host, the same on a GPU, and passes over any pieces of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/ops/attention/qsa.h"
#include "pack/synth/synthetic_geometry.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "tests/cpu_kernels/kernel_fixture.h"

namespace hearth {

inline AttentionGeometry FlashNextAttention() {
  return NamedGeometry(SyntheticModel::kFlashNext).attention;
}
inline AttentionGeometry FlashletAttention() {
  return NamedGeometry(SyntheticModel::kFlashlet).attention;
}
inline AttentionGeometry TinyAttention() {
  return {.head_count = 6,
          .kv_head_count = 2,
          .head_dim = 32,
          .rotary_dim = 8,
          .rope_theta = 1e4,
          .indexer_head_count = 2,
          .indexer_head_dim = 16,
          .block_tokens = 4,
          .block_count_max = 4};
}
inline AttentionGeometry OddAttention() {
  return {.head_count = 5,
          .kv_head_count = 1,
          .head_dim = 40,
          .rotary_dim = 6,
          .rope_theta = 1e4,
          .indexer_head_count = 3,
          .indexer_head_dim = 36,
          .block_tokens = 3,
          .block_count_max = 7};
}
// Head of eight values: a block of the quantisation spans heads.
inline AttentionGeometry NarrowAttention() {
  return {.head_count = 6,
          .kv_head_count = 3,
          .head_dim = 8,
          .rotary_dim = 4,
          .rope_theta = 1e4,
          .indexer_head_count = 1,
          .indexer_head_dim = 8,
          .block_tokens = 4,
          .block_count_max = 4};
}

// One sequence's share of the layer, as GpuLayerState.
struct QsaHistory {
  std::vector<std::byte> k, v;
  std::vector<float> k_scale, v_scale;
  std::vector<float> raw_keys, block_keys;
};

inline uint16_t Bf16Of(float x) {  // finite
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

// A value of the cache as the kernels read it.
inline double CacheValue(const QsaDesc& desc, std::span<const std::byte> cache,
                         std::span<const float> scales, size_t head, size_t d) {
  const size_t at = head * desc.attention.head_dim + d;
  if (desc.kv_format == KvFormat::kInt8) {
    return static_cast<double>(static_cast<int8_t>(cache[at])) * scales[head];
  }
  uint16_t bits;
  std::memcpy(&bits, cache.data() + at * 2, 2);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Rows at positions base, base + 1, ... that are still to run, and what came before them.
struct QsaSequence {
  uint32_t base = 0;
  uint32_t rows = 0;
  std::vector<float> qg, k, v, index;
  QsaHistory past;
};

struct QsaCase {
  QsaDesc desc;
  uint32_t ring_rows = 32;
  std::vector<QsaSequence> sequences;
  std::vector<float> q_norm, k_norm, index_q_norm, index_k_norm;

  uint32_t qg_width() const { return desc.attention.head_count * 2 * desc.attention.head_dim; }
  uint32_t kv_width() const { return desc.attention.kv_head_count * desc.attention.head_dim; }
  uint32_t index_width() const {
    return (desc.attention.indexer_head_count + 1) * desc.attention.indexer_head_dim;
  }
  uint32_t out_width() const { return desc.attention.head_count * desc.attention.head_dim; }

  QsaCase(Prng* prng, const QsaDesc& desc_in) : desc(desc_in) {
    const AttentionGeometry& a = desc.attention;
    q_norm = RandomFloats(prng, a.head_dim, 0.3f);
    k_norm = RandomFloats(prng, a.head_dim, 0.3f);
    index_q_norm = RandomFloats(prng, a.indexer_head_dim, 0.3f);
    index_k_norm = RandomFloats(prng, a.indexer_head_dim, 0.3f);
  }
  void AddSequence(Prng* prng, uint32_t base, uint32_t rows) {
    const AttentionGeometry& a = desc.attention;
    QsaSequence s;
    s.base = base;
    s.rows = rows;
    s.qg = RandomFloats(prng, size_t{rows} * qg_width(), 3);
    s.k = RandomFloats(prng, size_t{rows} * kv_width(), 2);
    s.v = RandomFloats(prng, size_t{rows} * kv_width(), 1);
    s.index = RandomFloats(prng, size_t{rows} * index_width(), 2);
    const QsaStateBytes bytes = QsaStateBytesOf(desc, ring_rows);
    s.past.k = RandomCache(prng, bytes.kv);
    s.past.v = RandomCache(prng, bytes.kv);
    s.past.k_scale = RandomFloats(prng, bytes.kv_scale / 4, 0.002f);
    s.past.v_scale = RandomFloats(prng, bytes.kv_scale / 4, 0.001f);
    for (float& x : s.past.k_scale) x = std::abs(x) + 0.01f;
    for (float& x : s.past.v_scale) x = std::abs(x) + 0.005f;
    s.past.raw_keys = RandomFloats(prng, bytes.raw_keys / 4, 2);
    s.past.block_keys = RandomFloats(prng, bytes.block_keys / 4, 1.7f);
    // Real ties: every third block has its neighbour's key, every fifth none.
    for (size_t b = 1; b < s.past.block_keys.size() / a.indexer_head_dim; ++b) {
      float* const key = &s.past.block_keys[b * a.indexer_head_dim];
      if (b % 3 == 0) std::copy_n(key - a.indexer_head_dim, a.indexer_head_dim, key);
      if (b % 5 == 0) std::fill_n(key, a.indexer_head_dim, 0.0f);
    }
    sequences.push_back(std::move(s));
  }

 private:
  std::vector<std::byte> RandomCache(Prng* prng, uint64_t count_bytes) const {
    std::vector<std::byte> cache(count_bytes);
    if (desc.kv_format == KvFormat::kInt8) {
      for (std::byte& x : cache) x = static_cast<std::byte>(prng->Below(255) - 127);
      return cache;
    }
    for (size_t i = 0; i < count_bytes; i += 2) {
      const uint16_t bits = Bf16Of(RandomFloat(prng, 1.7f));
      std::memcpy(&cache[i], &bits, 2);
    }
    return cache;
  }
};

// A vector in device memory.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const GpuInfo& gpu, const UniqueStream& stream, std::span<const T> values)
      : stream_(stream), count_(values.size()) {
    absl::StatusOr<DeviceBuffer> buffer =
        DeviceBuffer::Create(gpu.id, std::max<uint64_t>(values.size_bytes(), 16));
    HEARTH_CHECK(buffer.ok());
    buffer_ = std::make_unique<DeviceBuffer>(std::move(*buffer));
    Write(values);
  }
  T* data() const { return reinterpret_cast<T*>(buffer_->data()); }
  void Write(std::span<const T> values) const {
    HEARTH_CHECK(CopyToDevice(std::as_bytes(values), *buffer_, 0, stream_.view()).ok());
    HEARTH_CHECK(stream_.Synchronize().ok());
  }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    HEARTH_CHECK(
        CopyToHost(*buffer_, 0, std::as_writable_bytes(std::span(values)), stream_.view()).ok());
    HEARTH_CHECK(stream_.Synchronize().ok());
    return values;
  }

 private:
  const UniqueStream& stream_;
  size_t count_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

struct QsaPiece {  // of a pass
  uint32_t sequence = 0;
  uint32_t first = 0;  // row of the sequence
  uint32_t rows = 0;
};

// What the rows of one sequence became.
struct QsaResult {
  std::vector<float> qg, index, out, scale;
  std::vector<int8_t> q;
  std::vector<int32_t> sum16;
  std::vector<float> scores;     // (rows, score_stride)
  std::vector<uint32_t> chosen;  // (rows, block_count_max)
};

// One sequence in device memory.
struct QsaDeviceState {
  DeviceArray<std::byte> k, v;
  DeviceArray<float> k_scale, v_scale, raw_keys, block_keys;
  QsaDeviceState(const GpuInfo& gpu, const UniqueStream& stream, const QsaHistory& h)
      : k(gpu, stream, h.k),
        v(gpu, stream, h.v),
        k_scale(gpu, stream, h.k_scale),
        v_scale(gpu, stream, h.v_scale),
        raw_keys(gpu, stream, h.raw_keys),
        block_keys(gpu, stream, h.block_keys) {}
  QsaHistory Read() const {
    return {k.Read(), v.Read(), k_scale.Read(), v_scale.Read(), raw_keys.Read(), block_keys.Read()};
  }
  GpuLayerState View() const {
    return {.k = k.data(),
            .v = v.data(),
            .k_scale = k_scale.data(),
            .v_scale = v_scale.data(),
            .raw_keys = raw_keys.data(),
            .block_keys = block_keys.data()};
  }
};

// Inputs and outputs of the rows of one pass in device memory, ready to be launched. The layer is
// the second of two; the first one's addresses are null.
class QsaPass {
 public:
  QsaPass(const QsaCase& c, const QsaPlan& plan, const GpuInfo& gpu, const UniqueStream& stream,
          std::span<const std::unique_ptr<QsaDeviceState>> states, std::span<const QsaPiece> pieces)
      : desc_(c.desc), plan_(plan), stream_(stream) {
    std::vector<float> qg, k, v, index, cos, sin, block_cos, block_sin;
    std::vector<GpuLayerState> layers;
    std::vector<GpuSegment> segments(kPassSegmentsMax);
    std::vector<uint32_t> row_segment;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const QsaPiece& piece = pieces[i];
      const QsaSequence& s = c.sequences[piece.sequence];
      const auto append = [&](std::vector<float>* to, const std::vector<float>& from,
                              size_t width) {
        const auto begin = from.begin() + static_cast<ptrdiff_t>(piece.first * width);
        to->insert(to->end(), begin, begin + static_cast<ptrdiff_t>(piece.rows * width));
      };
      append(&qg, s.qg, c.qg_width());
      append(&k, s.k, c.kv_width());
      append(&v, s.v, c.kv_width());
      append(&index, s.index, c.index_width());
      for (uint32_t r = 0; r < piece.rows; ++r) {
        const uint32_t position = s.base + piece.first + r;
        AppendAngles(c.desc.attention, position, &cos, &sin);
        AppendAngles(c.desc.attention,
                     position / c.desc.attention.block_tokens * c.desc.attention.block_tokens,
                     &block_cos, &block_sin);
      }
      layers.push_back({});
      layers.push_back(states[piece.sequence]->View());
      segments[i].row_begin = rows_;
      segments[i].rows = piece.rows;
      segments[i].base = s.base + piece.first;
      row_segment.insert(row_segment.end(), piece.rows, static_cast<uint32_t>(i));
      rows_ += piece.rows;
    }
    const auto floats = [&](const std::vector<float>& values) {
      floats_.push_back(std::make_unique<DeviceArray<float>>(gpu, stream, values));
      return floats_.back()->data();
    };
    layers_ = std::make_unique<DeviceArray<GpuLayerState>>(gpu, stream, layers);
    for (size_t i = 0; i < pieces.size(); ++i) segments[i].layers = layers_->data() + 2 * i;
    segments_ = std::make_unique<DeviceArray<GpuSegment>>(gpu, stream, segments);
    row_segment.push_back(static_cast<uint32_t>(pieces.size()));  // the count lies behind the rows
    row_segment_ = std::make_unique<DeviceArray<uint32_t>>(gpu, stream, row_segment);
    const GpuPassTable table = {.segments = segments_->data(),
                                .row_segment = row_segment_->data(),
                                .segment_count = row_segment_->data() + rows_,
                                .rows = rows_,
                                .window_rows_max = 9,
                                .ring_rows = c.ring_rows};
    qg_ = std::make_unique<DeviceArray<float>>(gpu, stream, qg);
    index_ = std::make_unique<DeviceArray<float>>(gpu, stream, index);
    append_ = {.pass = table,
               .layer = 1,
               .qg = qg_->data(),
               .k = floats(k),
               .v = floats(v),
               .index = index_->data(),
               .q_norm = floats(c.q_norm),
               .k_norm = floats(c.k_norm),
               .index_q_norm = floats(c.index_q_norm),
               .index_k_norm = floats(c.index_k_norm),
               .cos = floats(cos),
               .sin = floats(sin),
               .block_cos = floats(block_cos),
               .block_sin = floats(block_sin)};
    const uint32_t width = c.out_width();
    const size_t blocks = ActivationBlocks(width);
    const auto poisoned = [](size_t count) {
      return std::vector<float>(count, std::bit_cast<float>(kUnwrittenBits));
    };
    out_ = std::make_unique<DeviceArray<float>>(gpu, stream, poisoned(size_t{rows_} * width));
    scale_ = std::make_unique<DeviceArray<float>>(gpu, stream, poisoned(rows_ * blocks));
    q_ = std::make_unique<DeviceArray<int8_t>>(gpu, stream,
                                               std::vector<int8_t>(rows_ * blocks * 32, -128));
    sum16_ = std::make_unique<DeviceArray<int32_t>>(
        gpu, stream, std::vector<int32_t>(rows_ * blocks * 2, INT32_MIN));
    workspace_ = std::make_unique<DeviceArray<std::byte>>(
        gpu, stream, std::vector<std::byte>(plan.workspace_bytes, std::byte{0xFF}));
    select_ = {.pass = table, .layer = 1, .index = index_->data(), .workspace = workspace_->data()};
    attend_ = {.pass = table,
               .layer = 1,
               .qg = qg_->data(),
               .workspace = workspace_->data(),
               .out = out_->data(),
               .q = q_->data(),
               .scale = scale_->data(),
               .sum16 = sum16_->data()};
  }

  absl::Status Append(CudaStreamView stream) const {
    return LaunchQsaAppend(desc_, append_, stream);
  }
  absl::Status Select(CudaStreamView stream) const {
    return LaunchQsaSelect(desc_, plan_, select_, stream);
  }
  absl::Status Attend(CudaStreamView stream) const {
    return LaunchQsaAttend(desc_, plan_, attend_, stream);
  }
  uint32_t rows() const { return rows_; }

  // From now on this pass is `other`, of as many rows and sequences, at its own addresses. `other`
  // has not run yet and outlives this.
  void Become(const QsaPass& other) const {
    for (size_t i = 0; i < floats_.size(); ++i) floats_[i]->Write(other.floats_[i]->Read());
    qg_->Write(other.qg_->Read());
    index_->Write(other.index_->Read());
    segments_->Write(other.segments_->Read());
    row_segment_->Write(other.row_segment_->Read());
  }

  // All rows of the pass. Scores are those of the last turn.
  QsaResult Read() const {
    QsaResult r = {.qg = qg_->Read(),
                   .index = index_->Read(),
                   .out = out_->Read(),
                   .scale = scale_->Read(),
                   .q = q_->Read(),
                   .sum16 = sum16_->Read(),
                   .scores = {},
                   .chosen = {}};
    const std::vector<std::byte> workspace = workspace_->Read();
    r.scores.resize(size_t{std::min(rows_, plan_.score_rows)} * plan_.score_stride);
    std::memcpy(r.scores.data(), workspace.data(), r.scores.size() * sizeof(float));
    r.chosen.resize(plan_.score_rows == 0 ? 0 : size_t{rows_} * desc_.attention.block_count_max);
    std::memcpy(r.chosen.data(), workspace.data() + plan_.chosen_offset_bytes,
                r.chosen.size() * sizeof(uint32_t));
    return r;
  }

 private:
  static void AppendAngles(const AttentionGeometry& a, uint32_t position, std::vector<float>* cos,
                           std::vector<float>* sin) {
    for (uint32_t i = 0; i < a.rotary_dim / 2; ++i) {
      const double angle = position * std::pow(a.rope_theta, -2.0 * i / a.rotary_dim);
      cos->push_back(static_cast<float>(std::cos(angle)));
      sin->push_back(static_cast<float>(std::sin(angle)));
    }
  }

  QsaDesc desc_;
  QsaPlan plan_;
  const UniqueStream& stream_;
  uint32_t rows_ = 0;
  std::vector<std::unique_ptr<DeviceArray<float>>> floats_;
  std::unique_ptr<DeviceArray<GpuLayerState>> layers_;
  std::unique_ptr<DeviceArray<GpuSegment>> segments_;
  std::unique_ptr<DeviceArray<uint32_t>> row_segment_;
  std::unique_ptr<DeviceArray<float>> qg_, index_, out_, scale_;
  std::unique_ptr<DeviceArray<int8_t>> q_;
  std::unique_ptr<DeviceArray<int32_t>> sum16_;
  std::unique_ptr<DeviceArray<std::byte>> workspace_;
  QsaAppendArgs append_;
  QsaSelectArgs select_;
  QsaAttendArgs attend_;
};

// A case in device memory, on which passes run.
class QsaOnGpu {
 public:
  QsaOnGpu(const QsaCase& c, const GpuInfo& gpu, const UniqueStream& stream)
      : case_(c), gpu_(gpu), stream_(stream) {
    absl::StatusOr<QsaPlan> plan = PlanQsa(c.desc);
    HEARTH_CHECK(plan.ok());
    plan_ = *plan;
    for (const QsaSequence& s : c.sequences) {
      states_.push_back(std::make_unique<QsaDeviceState>(gpu, stream, s.past));
    }
  }
  const QsaPlan& plan() const { return plan_; }
  const QsaDeviceState& state(size_t sequence) const { return *states_[sequence]; }
  QsaPass Pass(std::span<const QsaPiece> pieces) const {
    return QsaPass(case_, plan_, gpu_, stream_, states_, pieces);
  }
  // All three launches.
  absl::StatusOr<QsaResult> Run(std::span<const QsaPiece> pieces) const {
    const QsaPass pass = Pass(pieces);
    HEARTH_RETURN_IF_ERROR(pass.Append(stream_.view()));
    HEARTH_RETURN_IF_ERROR(pass.Select(stream_.view()));
    HEARTH_RETURN_IF_ERROR(pass.Attend(stream_.view()));
    HEARTH_RETURN_IF_ERROR(stream_.Synchronize());
    return pass.Read();
  }

 private:
  const QsaCase& case_;
  GpuInfo gpu_;
  const UniqueStream& stream_;
  QsaPlan plan_;
  std::vector<std::unique_ptr<QsaDeviceState>> states_;
};

}  // namespace hearth
