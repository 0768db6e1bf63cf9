// The kernels of the two mixers: gated delta net (convolution, norms, state) and sparse attention
// (block scores, attention). An item is what a layer keeps of one head: its state, keys or values.
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/bench/item_family.h"
#include "cpu_kernels/bench/kernel_catalogue.h"

namespace hearth {
namespace {

KernelFamily ConvFamily(const BenchShape& shape) {
  const uint32_t channels = shape.conv_channel_count, taps = shape.conv_taps;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = (rows + taps - 1 + taps) * channels, .written = rows * channels};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> ConvArgs {
      return {.x = c.in,
              .x_stride = channels,
              .w = c.in + uint64_t{rows + taps - 1} * channels,
              .w_stride = channels,
              .out = c.out,
              .out_stride = channels,
              .rows = rows,
              .channel_begin = 0,
              .channel_end = channels,
              .taps = taps};
    };
  };
  return ItemFamily("conv", absl::StrCat(taps, "x", channels), &CpuKernels::conv, floats, bind);
}

KernelFamily L2NormFamily(const BenchShape& shape) {
  const uint32_t heads = shape.gdn_key_head_count, dim = shape.gdn_dim;
  const auto floats = [=](uint64_t rows) -> ItemFloats { return {.updated = rows * heads * dim}; };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> L2NormArgs {
      return {.x = c.out, .x_stride = heads * dim, .rows = rows, .heads = heads, .dim = dim};
    };
  };
  return ItemFamily("l2_norm", absl::StrCat(heads, "x", dim), &CpuKernels::l2_norm, floats, bind);
}

// Decays and betas of some rows: values that keep a state from growing, however often it is used.
struct GdnGates {
  explicit GdnGates(uint32_t rows) : decay(rows, 0.9f), log_decay(rows, -0.1f), beta(rows, 0.5f) {}
  std::vector<float> decay, log_decay, beta;
};

// One head: its state is read and written again.
KernelFamily GdnRecurrentFamily(const BenchShape& shape) {
  const uint32_t dim = shape.gdn_dim;
  const uint64_t state = uint64_t{dim} * dim;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * 3 * dim, .written = rows * dim, .updated = state};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    const auto gates = std::make_shared<GdnGates>(rows);
    return [=](const ItemCall& c) -> GdnRecurrentArgs {
      return {.q = c.in,
              .k = c.in + dim,
              .v = c.in + 2 * dim,
              .qkv_stride = 3 * dim,
              .decay = gates->decay.data(),
              .beta = gates->beta.data(),
              .gate_stride = 1,
              .state_in = c.out,
              .state_out = c.out,
              .out = c.out + state,
              .out_stride = dim,
              .rows = rows,
              .key_dim = dim,
              .value_dim = dim};
    };
  };
  return ItemFamily("gdn_recurrent", absl::StrCat(dim, "x", dim), &CpuKernels::gdn_recurrent,
                    floats, bind);
}

// A kernel for prompts: --rows 64 and more show what it is for.
KernelFamily GdnChunkedFamily(const BenchShape& shape) {
  constexpr uint32_t kChunkRows = 64;
  const uint32_t dim = shape.gdn_dim;
  const uint64_t state = uint64_t{dim} * dim;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * 3 * dim, .written = rows * dim, .updated = state};
  };
  const auto bind = [=](uint32_t rows, uint32_t worker_count) {
    const size_t scratch_floats = GdnChunkedScratchFloats(kChunkRows, dim, dim);
    const auto gates = std::make_shared<GdnGates>(rows);
    const auto scratch = std::make_shared<std::vector<float>>(scratch_floats * worker_count);
    return [=](const ItemCall& c) -> GdnChunkedArgs {
      return {.q = c.in,
              .k = c.in + dim,
              .v = c.in + 2 * dim,
              .qkv_stride = 3 * dim,
              .log_decay = gates->log_decay.data(),
              .beta = gates->beta.data(),
              .gate_stride = 1,
              .state = c.out,
              .out = c.out + state,
              .out_stride = dim,
              .rows = rows,
              .key_dim = dim,
              .value_dim = dim,
              .chunk_rows = kChunkRows,
              .scratch = scratch->data() + scratch_floats * c.worker};
    };
  };
  return ItemFamily("gdn_chunked", absl::StrCat(dim, "x", dim), &CpuKernels::gdn_chunked, floats,
                    bind);
}

std::shared_ptr<std::vector<float>> Queries(uint64_t count) {
  const auto q = std::make_shared<std::vector<float>>(count);
  FillFloats(std::as_writable_bytes(std::span(*q)));
  return q;
}

// The keys of a context; every row scores all of them.
KernelFamily BlockScoreFamily(const BenchShape& shape) {
  const uint32_t heads = shape.indexer_head_count, dim = shape.indexer_dim;
  const uint32_t blocks = shape.block_count;
  const auto floats = [=](uint64_t) -> ItemFloats {
    return {.read = uint64_t{blocks} * dim, .written = blocks, .call_per_row = true};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    const auto q = Queries(uint64_t{rows} * heads * dim);
    return [=](const ItemCall& c) -> BlockScoreArgs {
      return {.q = q->data() + uint64_t{c.row} * heads * dim,
              .keys = c.in,
              .score = c.out,
              .heads = heads,
              .dim = dim,
              .block_count = blocks,
              .scale = 1 / std::sqrt(static_cast<float>(dim))};
    };
  };
  return ItemFamily("block_score", absl::StrCat(heads, "x", dim, ", ", blocks, " blocks"),
                    &CpuKernels::block_score, floats, bind);
}

// One query head over the keys and values of its group; every row attends to all of them.
KernelFamily AttendFamily(const BenchShape& shape) {
  struct Scratch {
    std::vector<float> scores, out;
  };
  const uint32_t count = shape.position_count, dim = shape.head_dim;
  const auto floats = [=](uint64_t) -> ItemFloats {
    return {.read = uint64_t{2} * count * dim, .call_per_row = true};
  };
  const auto bind = [=](uint32_t rows, uint32_t worker_count) {
    const auto q = Queries(uint64_t{rows} * dim);
    const auto positions = std::make_shared<std::vector<uint32_t>>(count);
    for (uint32_t i = 0; i < count; ++i) (*positions)[i] = i;
    const auto scratch = std::make_shared<std::vector<Scratch>>(worker_count);
    for (Scratch& s : *scratch) {
      s.scores.resize(count);
      s.out.resize(dim);
    }
    return [=](const ItemCall& c) -> AttendArgs {
      Scratch& s = (*scratch)[c.worker];
      return {.q = q->data() + uint64_t{c.row} * dim,
              .k = c.in,
              .v = c.in + uint64_t{count} * dim,
              .kv_stride = dim,
              .positions = positions->data(),
              .count = count,
              .dim = dim,
              .scale = 1 / std::sqrt(static_cast<float>(dim)),
              .scores = s.scores.data(),
              .out = s.out.data()};
    };
  };
  return ItemFamily("attend", absl::StrCat(dim, ", ", count, " positions"), &CpuKernels::attend,
                    floats, bind);
}

}  // namespace

void AddMixerFamilies(const BenchShape& shape, std::vector<KernelFamily>* families) {
  families->push_back(ConvFamily(shape));
  families->push_back(L2NormFamily(shape));
  families->push_back(GdnRecurrentFamily(shape));
  families->push_back(GdnChunkedFamily(shape));
  families->push_back(BlockScoreFamily(shape));
  families->push_back(AttendFamily(shape));
}

}  // namespace hearth
