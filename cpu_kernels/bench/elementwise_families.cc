// The kernels that work row by row on activations: quantisation, norms, gates, hyper-connections,
// the end of a MoE block, rotary embedding, the choice of experts.
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/bench/item_family.h"
#include "cpu_kernels/bench/kernel_catalogue.h"

namespace hearth {
namespace {

constexpr float kEpsilon = 1e-6f;

KernelFamily QuantizeFamily(const BenchShape& shape) {
  const uint32_t cols = shape.hidden;
  const uint64_t blocks = ActivationBlocks(cols);
  // 32 codes, a scale and two sums of a block are 44 bytes.
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * cols, .written = rows * blocks * 11};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> QuantizeRowsArgs {
      auto* const scale = c.out + rows * blocks * 8;
      return {.x = c.in,
              .x_stride = cols,
              .rows = rows,
              .cols = cols,
              .q = reinterpret_cast<int8_t*>(c.out),
              .scale = scale,
              .sum16 = reinterpret_cast<int32_t*>(scale + rows * blocks)};
    };
  };
  return ItemFamily("quantize_rows", absl::StrCat(cols), &CpuKernels::quantize_rows, floats, bind);
}

KernelFamily RotateQuantizeFamily(const BenchShape& shape) {
  const uint32_t cols = shape.hidden;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * cols, .written = rows * (cols / 4 + 2)};
  };
  const auto bind = [=](uint32_t rows, uint32_t worker_count) {
    const auto scratch = std::make_shared<std::vector<float>>(uint64_t{worker_count} * cols);
    return [=](const ItemCall& c) -> RotateQuantizeArgs {
      auto* const scale = c.out + uint64_t{rows} * cols / 4;
      return {.x = c.in,
              .x_stride = cols,
              .rows = rows,
              .cols = cols,
              .scratch = scratch->data() + uint64_t{c.worker} * cols,
              .q = reinterpret_cast<int8_t*>(c.out),
              .scale = scale,
              .sum = reinterpret_cast<int32_t*>(scale + rows)};
    };
  };
  return ItemFamily("rotate_quantize_rows", absl::StrCat(cols), &CpuKernels::rotate_quantize_rows,
                    floats, bind);
}

KernelFamily RmsNormFamily(const BenchShape& shape) {
  const uint32_t cols = shape.stream_count * shape.hidden;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * cols + cols, .written = rows * cols};
  };
  const auto bind = [=, group = shape.hidden](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> RmsNormArgs {
      return {.x = c.in,
              .x_stride = cols,
              .y = c.out,
              .y_stride = cols,
              .w = c.in + uint64_t{rows} * cols,
              .w_count = cols,
              .rows = rows,
              .cols = cols,
              .group = group,
              .epsilon = kEpsilon};
    };
  };
  return ItemFamily("rms_norm", absl::StrCat(shape.stream_count, "x", shape.hidden),
                    &CpuKernels::rms_norm, floats, bind);
}

// y = f(x) or f(x, z) over `cols` values a row.
template <class Member, class ArgsOf>
KernelFamily MapFamily(const char* name, uint32_t cols, uint32_t operands, Member member,
                       ArgsOf args_of) {
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * cols * operands, .written = rows * cols};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) { return args_of(c, uint64_t{rows} * cols); };
  };
  return ItemFamily(name, absl::StrCat(cols), member, floats, bind);
}

void AddMaps(const BenchShape& shape, std::vector<KernelFamily>* families) {
  families->push_back(MapFamily("silu", shape.conv_channel_count, 1, &CpuKernels::silu,
                                [](const ItemCall& c, uint64_t count) -> SiluArgs {
                                  return {.x = c.in, .y = c.out, .count = count};
                                }));
  families->push_back(MapFamily("sigmoid", shape.hidden, 1, &CpuKernels::sigmoid,
                                [](const ItemCall& c, uint64_t count) -> SigmoidArgs {
                                  return {.x = c.in, .y = c.out, .count = count};
                                }));
  families->push_back(MapFamily("swiglu", shape.width, 2, &CpuKernels::swiglu,
                                [](const ItemCall& c, uint64_t count) -> SwigluArgs {
                                  return {
                                      .gate = c.in, .up = c.in + count, .y = c.out, .count = count};
                                }));
  families->push_back(MapFamily("gate", shape.head_count * shape.head_dim, 2, &CpuKernels::gate,
                                [](const ItemCall& c, uint64_t count) -> GateArgs {
                                  return {.x = c.in, .z = c.in + count, .y = c.out, .count = count};
                                }));
}

KernelFamily StreamMixFamily(const BenchShape& shape) {
  const uint64_t d = uint64_t{shape.stream_count} * shape.hidden;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * d * 2, .written = rows * shape.hidden};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> StreamMixArgs {
      return {.gate = c.in,
              .hn = c.in + rows * d,
              .u = c.out,
              .rows = rows,
              .streams = shape.stream_count,
              .hidden = shape.hidden};
    };
  };
  return ItemFamily("stream_mix", absl::StrCat(shape.stream_count, "x", shape.hidden),
                    &CpuKernels::stream_mix, floats, bind);
}

KernelFamily StreamAddFamily(const BenchShape& shape) {
  const uint64_t d = uint64_t{shape.stream_count} * shape.hidden;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * (shape.hidden + shape.stream_count), .updated = rows * d};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> StreamAddArgs {
      return {.h = c.out,
              .y = c.in,
              .inject = c.in + uint64_t{rows} * shape.hidden,
              .rows = rows,
              .streams = shape.stream_count,
              .hidden = shape.hidden};
    };
  };
  return ItemFamily("stream_add", absl::StrCat(shape.stream_count, "x", shape.hidden),
                    &CpuKernels::stream_add, floats, bind);
}

KernelFamily CombineFamily(const BenchShape& shape) {
  const uint64_t ranks = shape.rank_count;
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * ((ranks + 1) * shape.hidden + ranks + 1),
            .written = rows * shape.hidden};
  };
  const auto bind = [=](uint32_t rows, uint32_t) {
    return [=](const ItemCall& c) -> CombineArgs {
      const float* const shared = c.in + rows * ranks * shape.hidden;
      const float* const weight = shared + uint64_t{rows} * shape.hidden;
      return {.expert_y = c.in,
              .weight = weight,
              .shared = shared,
              .shared_gate = weight + rows * ranks,
              .out = c.out,
              .rows = rows,
              .ranks = shape.rank_count,
              .hidden = shape.hidden};
    };
  };
  return ItemFamily("combine", absl::StrCat(ranks, "x", shape.hidden), &CpuKernels::combine, floats,
                    bind);
}

KernelFamily RotaryFamily(const BenchShape& shape) {
  const uint32_t row_floats = shape.head_count * shape.rotary_dim;
  const uint32_t half = shape.rotary_dim / 2;
  const auto floats = [=](uint64_t rows) -> ItemFloats { return {.updated = rows * row_floats}; };
  const auto bind = [=](uint32_t rows, uint32_t) {
    // True rotations, so that values that are turned again and again keep their magnitude.
    const auto turns = std::make_shared<std::vector<float>>(uint64_t{rows} * half * 2);
    for (uint64_t i = 0; i < uint64_t{rows} * half; ++i) {
      (*turns)[i] = std::cos(static_cast<float>(i));
      (*turns)[uint64_t{rows} * half + i] = std::sin(static_cast<float>(i));
    }
    return [=](const ItemCall& c) -> RotaryArgs {
      return {.x = c.out,
              .row_stride = row_floats,
              .head_stride = shape.rotary_dim,
              .cos = turns->data(),
              .sin = turns->data() + uint64_t{rows} * half,
              .rows = rows,
              .heads = shape.head_count,
              .rotary_dim = shape.rotary_dim};
    };
  };
  return ItemFamily("rotary", absl::StrCat(shape.head_count, "x", shape.rotary_dim),
                    &CpuKernels::rotary, floats, bind);
}

KernelFamily TopKFamily(uint32_t k, uint32_t count) {
  struct Scratch {
    std::vector<uint32_t> index;
    std::vector<uint64_t> order;
  };
  const auto floats = [=](uint64_t rows) -> ItemFloats {
    return {.read = rows * count, .call_per_row = true};
  };
  const auto bind = [=](uint32_t, uint32_t worker_count) {
    const auto scratch = std::make_shared<std::vector<Scratch>>(worker_count);
    for (Scratch& s : *scratch) {
      s.index.resize(k);
      s.order.resize(count);
    }
    return [=](const ItemCall& c) -> TopKArgs {
      Scratch& s = (*scratch)[c.worker];
      return {.values = c.in + uint64_t{c.row} * count,
              .count = count,
              .k = k,
              .index = s.index.data(),
              .scratch = s.order.data()};
    };
  };
  return ItemFamily(absl::StrCat("top_k/", k, "of", count), absl::StrCat(count), &CpuKernels::top_k,
                    floats, bind);
}

}  // namespace

void AddElementwiseFamilies(const BenchShape& shape, std::vector<KernelFamily>* families) {
  families->push_back(QuantizeFamily(shape));
  families->push_back(RotateQuantizeFamily(shape));
  families->push_back(RmsNormFamily(shape));
  AddMaps(shape, families);
  families->push_back(StreamMixFamily(shape));
  families->push_back(StreamAddFamily(shape));
  families->push_back(CombineFamily(shape));
  families->push_back(RotaryFamily(shape));
  families->push_back(TopKFamily(shape.rank_count, shape.expert_count));
  families->push_back(TopKFamily(shape.chosen_block_count, shape.block_count));
}

}  // namespace hearth
