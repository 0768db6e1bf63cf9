// Speed of the quantised kernels on one core: experts in NVFP4, dense Q8, row-major matrices,
// activations.
//   --benchmark_filter=avx512/nvfp4  chooses; see the counters  weights/s  and  weight_bytes/s.
// "cached" cases go over one expert or matrix again and again; "dram" cases over many, 256 MiB of
// them.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "pack/format/matrix_layout.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

constexpr uint32_t kHidden = 2560;  // Flash-Next
constexpr uint32_t kWidth = 640;
constexpr size_t kDramBytes = size_t{256} << 20;

enum class Residence { kCached, kDram };

struct Rows {
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum16;
  uint32_t count;
  uint32_t cols;

  Rows(uint32_t count_in, uint32_t cols_in)
      : x(size_t{count_in} * cols_in),
        q(size_t{count_in} * ActivationBlocks(cols_in) * 32),
        scale(size_t{count_in} * ActivationBlocks(cols_in)),
        sum16(size_t{count_in} * ActivationBlocks(cols_in) * 2),
        count(count_in),
        cols(cols_in) {
    Prng prng(1);
    for (float& v : x) v = static_cast<float>(prng.Uniform() - 0.5);
    FindCpuKernels("scalar")->quantize_rows(Args());
  }
  QuantizeRowsArgs Args() {
    return {x.data(), cols, count, cols, q.data(), scale.data(), sum16.data()};
  }
  QuantizedRows View() const { return {q.data(), scale.data(), sum16.data(), count, cols}; }
};

// Bytes that are valid in every format: codes are arbitrary, no NaN scale, normal multipliers.
std::vector<std::byte> Weights(size_t bytes) {
  std::vector<std::byte> w(bytes);
  Prng prng(2);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t value = prng.Next() & 0x3B3B3B3B3B3B3B3Bull;
    std::memcpy(w.data() + i, &value, 8);
  }
  return w;
}

void Report(benchmark::State& state, double weights, double bytes) {
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["weights/s"] =
      benchmark::Counter(weights * iterations, benchmark::Counter::kIsRate);
  state.counters["weight_bytes/s"] =
      benchmark::Counter(bytes * iterations, benchmark::Counter::kIsRate);
}

size_t CopyCount(Residence residence, size_t bytes) {
  return residence == Residence::kDram ? kDramBytes / bytes + 1 : 1;
}

void BenchGateUp(benchmark::State& state, const CpuKernels* kernels, ExpertFormat format,
                 uint32_t rows, Residence residence) {
  const ExpertLayout layout = {format, kHidden, kWidth};
  const size_t copies = CopyCount(residence, layout.stride_bytes());
  const std::vector<std::byte> blobs = Weights(layout.stride_bytes() * copies);
  const Rows x(rows, kHidden);
  std::vector<float> h(size_t{rows} * kWidth);
  size_t copy = 0;
  for (auto _ : state) {
    kernels->expert_gate_up({&layout, blobs.data() + copy * layout.stride_bytes(), x.View(),
                             x.x.data(), kHidden, rows, h.data(), kWidth, 0, BandCount(kWidth)});
    benchmark::ClobberMemory();
    copy = (copy + 1) % copies;
  }
  Report(state, 2.0 * kWidth * kHidden,
         static_cast<double>(layout.projection_offset_bytes(Projection::kDown)));
}

void BenchDown(benchmark::State& state, const CpuKernels* kernels, ExpertFormat format,
               uint32_t rows, Residence residence) {
  const ExpertLayout layout = {format, kHidden, kWidth};
  const size_t copies = CopyCount(residence, layout.stride_bytes());
  const std::vector<std::byte> blobs = Weights(layout.stride_bytes() * copies);
  const Rows h(rows, kWidth);
  std::vector<float> y(size_t{rows} * kHidden);
  size_t copy = 0;
  for (auto _ : state) {
    kernels->expert_down({&layout, blobs.data() + copy * layout.stride_bytes(), h.View(),
                          h.x.data(), kWidth, rows, y.data(), kHidden, 0, BandCount(kHidden)});
    benchmark::ClobberMemory();
    copy = (copy + 1) % copies;
  }
  Report(state, 1.0 * kWidth * kHidden,
         static_cast<double>(layout.band_bytes(Projection::kDown) * BandCount(kHidden)));
}

void BenchQ8(benchmark::State& state, const CpuKernels* kernels, uint32_t rows,
             Residence residence) {
  const uint64_t bytes = MatrixBytes(MatrixFormat::kQ8, kHidden, kHidden);
  const size_t copies = CopyCount(residence, bytes);
  const std::vector<std::byte> w = Weights(bytes * copies);
  const Rows x(rows, kHidden);
  std::vector<float> y(size_t{rows} * kHidden);
  size_t copy = 0;
  for (auto _ : state) {
    kernels->matmul_q8(
        {w.data() + copy * bytes, x.View(), y.data(), kHidden, kHidden, 0, BandCount(kHidden)});
    benchmark::ClobberMemory();
    copy = (copy + 1) % copies;
  }
  Report(state, 1.0 * kHidden * kHidden, static_cast<double>(bytes));
}

void BenchRowMajor(benchmark::State& state, const Kernel<MatmulRowsArgs>& kernel,
                   size_t weight_bytes, uint32_t rows) {
  const std::vector<std::byte> w = Weights(size_t{kHidden} * kHidden * weight_bytes);
  const Rows x(rows, kHidden);
  std::vector<float> y(size_t{rows} * kHidden);
  for (auto _ : state) {
    kernel({w.data(), x.x.data(), kHidden, rows, kHidden, y.data(), kHidden, 0, kHidden});
    benchmark::ClobberMemory();
  }
  Report(state, 1.0 * kHidden * kHidden, static_cast<double>(w.size()));
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * kHidden * kHidden * rows * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

void BenchQuantize(benchmark::State& state, const CpuKernels* kernels) {
  Rows x(1, kHidden);
  for (auto _ : state) {
    kernels->quantize_rows(x.Args());
    benchmark::ClobberMemory();
  }
}

void RegisterFor(const CpuKernels* k) {
  const std::string isa(IsaName(k->isa));
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMicrosecond);
  };
  add(isa + "/quantize/2560", [k](benchmark::State& s) { BenchQuantize(s, k); });
  for (const uint32_t rows : {1u, 2u, 4u, 7u, 8u, 32u}) {
    for (const Residence residence : {Residence::kCached, Residence::kDram}) {
      if (residence == Residence::kDram && rows > 8) continue;
      const std::string where = residence == Residence::kCached ? "/cached/" : "/dram/";
      const std::string tail = where + std::to_string(rows);
      add(isa + "/nvfp4_gate_up" + tail,
          [=](benchmark::State& s) { BenchGateUp(s, k, ExpertFormat::kNvfp4, rows, residence); });
      add(isa + "/nvfp4_down" + tail,
          [=](benchmark::State& s) { BenchDown(s, k, ExpertFormat::kNvfp4, rows, residence); });
      add(isa + "/q8" + tail, [=](benchmark::State& s) { BenchQ8(s, k, rows, residence); });
    }
  }
  for (const uint32_t rows : {1u, 4u, 8u}) {
    for (const ExpertFormat format :
         {ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
      add(isa + "/" + ExpertFormatName(format) + "_gate_up/cached/" + std::to_string(rows),
          [=](benchmark::State& s) { BenchGateUp(s, k, format, rows, Residence::kCached); });
    }
  }
  for (const uint32_t rows : {1u, 4u, 64u, 256u}) {
    add(isa + "/bf16_rows/cached/" + std::to_string(rows),
        [=](benchmark::State& s) { BenchRowMajor(s, k->matmul_bf16, 2, rows); });
    add(isa + "/f32_rows/cached/" + std::to_string(rows),
        [=](benchmark::State& s) { BenchRowMajor(s, k->matmul_f32, 4, rows); });
  }
}

void RegisterAll() {
  const CpuFeatures have = DetectCpuFeatures();
  for (const CpuKernels& row : AllCpuKernels()) {
    if (row.isa != Isa::kScalar && Supports(have, row.isa)) RegisterFor(&row);
  }
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  hearth::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
