// The kernels that read weights: experts and dense matrices. An item is one expert's blob or one
// matrix; workers share its bands, as the expert pool and the projections do.
#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/bench/bench_data.h"
#include "cpu_kernels/bench/kernel_catalogue.h"
#include "pack/format/expert_layout.h"
#include "pack/format/matrix_layout.h"

namespace hearth {
namespace {

constexpr uint32_t kMatricesPerJob = 8;  // as many bytes as a large projection of the model

// Activations as fp32, quantised, and rotated and quantised, and room for what a kernel writes:
// small, shared, in cache.
struct Activations {
  Activations(uint32_t rows_in, uint32_t cols_in, uint32_t out_cols_in)
      : rows(rows_in),
        cols(cols_in),
        out_cols(out_cols_in),
        x(size_t{rows} * cols),
        q(size_t{rows} * ActivationBlocks(cols) * kActivationBlockValues),
        scale(size_t{rows} * ActivationBlocks(cols)),
        sum16(size_t{rows} * ActivationBlocks(cols) * 2),
        xt_q(size_t{rows} * cols),
        xt_scale(rows),
        xt_sum(rows),
        y(size_t{rows} * out_cols) {
    FillFloats(std::as_writable_bytes(std::span(x.data(), size_t{rows} * cols)));
    AllCpuKernels().back().quantize_rows.fn({.x = x.data(),
                                             .x_stride = cols,
                                             .rows = rows,
                                             .cols = cols,
                                             .q = q.data(),
                                             .scale = scale.data(),
                                             .sum16 = sum16.data()});
    LineArray<float> scratch(cols);
    AllCpuKernels().back().rotate_quantize_rows.fn({.x = x.data(),
                                                    .x_stride = cols,
                                                    .rows = rows,
                                                    .cols = cols,
                                                    .scratch = scratch.data(),
                                                    .q = xt_q.data(),
                                                    .scale = xt_scale.data(),
                                                    .sum = xt_sum.data()});
  }
  XtRows Rotated() const { return {xt_q.data(), xt_scale.data(), xt_sum.data(), rows, cols}; }
  QuantizedRows Quantized() const { return {q.data(), scale.data(), sum16.data(), rows, cols}; }

  const uint32_t rows, cols, out_cols;
  LineArray<float> x;
  LineArray<int8_t> q;
  LineArray<float> scale;
  LineArray<int32_t> sum16;
  LineArray<int8_t> xt_q;
  LineArray<float> xt_scale;
  LineArray<int32_t> xt_sum;
  LineArray<float> y;
};

// Facts of a kernel that reads `read_bytes` of an item of `item_bytes`.
WorkloadFacts ReadOnly(uint64_t item_bytes, uint64_t read_bytes, uint64_t weight_count) {
  return {.in_bytes = item_bytes,
          .touched_bytes = read_bytes,
          .moved_bytes = read_bytes,
          .weight_count = weight_count};
}

// Where the next run of this worker begins to read.
const std::byte* ReadAhead(const ExpertLayout& layout, Projection p, const BenchItem& item) {
  if (item.next_in == nullptr) return nullptr;
  const uint64_t share =
      layout.format == ExpertFormat::kXt ? 0 : item.next_begin * layout.band_bytes(p);
  return item.next_in + layout.projection_offset_bytes(p) + share;
}

KernelFamily GateUpFamily(const BenchShape& shape, const ExpertLayout& layout) {
  KernelFamily family{.name = absl::StrCat("expert_gate_up/", ExpertLayoutName(layout)),
                      .shape = absl::StrCat(2 * shape.width, "x", shape.hidden),
                      .kernel_offset_bytes = KernelOffsetBytes(&CpuKernels::expert_gate_up)};
  family.make = [layout, ranks = shape.rank_count](uint32_t rows, uint32_t) {
    WorkloadFacts facts =
        ReadOnly(layout.stride_bytes(), layout.projection_offset_bytes(Projection::kDown),
                 uint64_t{2} * layout.width * layout.hidden);
    facts.share_count = BandCount(layout.width);
    facts.runs_per_job = ranks;
    const auto a = std::make_shared<Activations>(rows, layout.hidden, layout.width);
    return MakeCalls(&CpuKernels::expert_gate_up, facts, 1,
                     [a, layout](const BenchItem& item, uint32_t, uint32_t begin, uint32_t end,
                                 uint32_t) -> ExpertGateUpArgs {
                       return {.layout = &layout,
                               .blob = item.in,
                               .xq = a->Quantized(),
                               .x = a->x.data(),
                               .x_stride = a->cols,
                               .rows = a->rows,
                               .h = a->y.data(),
                               .h_stride = a->out_cols,
                               .band_begin = begin,
                               .band_end = end,
                               .read_ahead = ReadAhead(layout, Projection::kGate, item),
                               .xt = a->Rotated()};
                     });
  };
  return family;
}

KernelFamily DownFamily(const BenchShape& shape, const ExpertLayout& layout) {
  KernelFamily family{.name = absl::StrCat("expert_down/", ExpertLayoutName(layout)),
                      .shape = absl::StrCat(shape.hidden, "x", shape.width),
                      .kernel_offset_bytes = KernelOffsetBytes(&CpuKernels::expert_down)};
  family.make = [layout, ranks = shape.rank_count](uint32_t rows, uint32_t) {
    WorkloadFacts facts =
        ReadOnly(layout.stride_bytes(),
                 layout.trailer_offset_bytes() - layout.projection_offset_bytes(Projection::kDown),
                 uint64_t{layout.width} * layout.hidden);
    facts.share_count = BandCount(layout.hidden);
    facts.runs_per_job = ranks;
    const auto a = std::make_shared<Activations>(rows, layout.width, layout.hidden);
    return MakeCalls(&CpuKernels::expert_down, facts, 1,
                     [a, layout](const BenchItem& item, uint32_t, uint32_t begin, uint32_t end,
                                 uint32_t) -> ExpertDownArgs {
                       return {.layout = &layout,
                               .blob = item.in,
                               .hq = a->Quantized(),
                               .h = a->x.data(),
                               .h_stride = a->cols,
                               .rows = a->rows,
                               .y = a->y.data(),
                               .y_stride = a->out_cols,
                               .band_begin = begin,
                               .band_end = end,
                               .read_ahead = ReadAhead(layout, Projection::kDown, item),
                               .ht = a->Rotated()};
                     });
  };
  return family;
}

// Rows of a window do not matter to it: the arithmetic of checks decodes an expert once.
KernelFamily DecodeFamily(const BenchShape& shape, const ExpertLayout& layout) {
  KernelFamily family{.name = absl::StrCat("decode_expert/", ExpertLayoutName(layout)),
                      .shape = absl::StrCat("3x", shape.width, "x", shape.hidden),
                      .kernel_offset_bytes = KernelOffsetBytes(&CpuKernels::decode_expert),
                      .rows_matter = false};
  family.make = [layout](uint32_t, uint32_t) {
    const ExpertLayout f32{
        .format = ExpertFormat::kF32, .hidden = layout.hidden, .width = layout.width};
    WorkloadFacts facts = ReadOnly(layout.stride_bytes(), layout.blob_bytes(),
                                   uint64_t{3} * layout.width * layout.hidden);
    facts.out_bytes = f32.stride_bytes();
    facts.touched_bytes += f32.blob_bytes();
    facts.moved_bytes += f32.blob_bytes();
    return MakeCalls(&CpuKernels::decode_expert, facts, 1,
                     [layout](const BenchItem& item, uint32_t, uint32_t, uint32_t,
                              uint32_t) -> DecodeExpertArgs {
                       return {.layout = &layout, .blob = item.in, .f32_blob = item.out};
                     });
  };
  return family;
}

void AddExpertFamilies(const BenchShape& shape, std::vector<KernelFamily>* families) {
  using MakeFamily = KernelFamily (*)(const BenchShape&, const ExpertLayout&);
  for (const MakeFamily make : {GateUpFamily, DownFamily, DecodeFamily}) {
    for (const BenchedFormat& format : kBenchedFormats) {
      const ExpertLayout layout = format.Layout(shape.hidden, shape.width);
      families->push_back(make(shape, layout));
      families->back().format = format.Name();
      families->back().fill = [format, layout](std::span<std::byte> into) {
        FillExpert(format, layout, into);
      };
    }
  }
}

// A matrix of the shape of one projection of the shared expert: (width, hidden).
template <class Member, class MakeArgs>
KernelFamily MatrixFamily(const BenchShape& shape, MatrixFormat format, std::string name,
                          Member member, MakeArgs make_args) {
  KernelFamily family{.name = std::move(name),
                      .shape = absl::StrCat(shape.width, "x", shape.hidden),
                      .kernel_offset_bytes = KernelOffsetBytes(member)};
  family.fill = [format, cols = shape.hidden](std::span<std::byte> into) {
    FillMatrix(format, cols, into);
  };
  family.make = [shape, format, member, make_args](uint32_t rows, uint32_t) {
    const uint64_t bytes = MatrixBytes(format, shape.width, shape.hidden);
    WorkloadFacts facts = ReadOnly(bytes, bytes, uint64_t{shape.width} * shape.hidden);
    facts.share_count = BandCount(shape.width);
    facts.runs_per_job = kMatricesPerJob;
    const auto a = std::make_shared<Activations>(rows, shape.hidden, shape.width);
    return MakeCalls(member, facts, 1,
                     [a, make_args](const BenchItem& item, uint32_t, uint32_t begin, uint32_t end,
                                    uint32_t) { return make_args(*a, item.in, begin, end); });
  };
  return family;
}

MatmulQ8Args Q8Args(Activations& a, const std::byte* w, uint32_t begin, uint32_t end) {
  return {.w = w,
          .x = a.Quantized(),
          .y = a.y.data(),
          .y_stride = a.out_cols,
          .out_rows = a.out_cols,
          .band_begin = begin,
          .band_end = end};
}

MatmulRowsArgs RowsArgs(Activations& a, const std::byte* w, uint32_t begin, uint32_t end) {
  return {.w = w,
          .x = a.x.data(),
          .x_stride = a.cols,
          .rows = a.rows,
          .cols = a.cols,
          .y = a.y.data(),
          .y_stride = a.out_cols,
          .row_begin = begin * kBandRows,
          .row_end = std::min(end * kBandRows, a.out_cols)};
}

}  // namespace

void AddWeightFamilies(const BenchShape& shape, std::vector<KernelFamily>* families) {
  AddExpertFamilies(shape, families);
  families->push_back(
      MatrixFamily(shape, MatrixFormat::kQ8, "matmul_q8", &CpuKernels::matmul_q8, Q8Args));
  families->push_back(
      MatrixFamily(shape, MatrixFormat::kBf16, "matmul_bf16", &CpuKernels::matmul_bf16, RowsArgs));
  families->push_back(
      MatrixFamily(shape, MatrixFormat::kF32, "matmul_f32", &CpuKernels::matmul_f32, RowsArgs));
}

}  // namespace hearth
