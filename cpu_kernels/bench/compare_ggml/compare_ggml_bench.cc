// NVFP4 rows of one expert's gate and up (1280 x 2560) on one core, from the cache: Hearth's
// kernels against the vec_dot that ggml-cpu chooses for NVFP4 times Q8_0. Both get the same weight
// codes, scales and activations; the results are compared before anything is timed. The contenders
// take turns, and the medians of many turns are printed as a table, then as one line of JSON.
//   usage: compare_ggml [turns, default 301]
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

constexpr uint32_t kHidden = 2560;  // Flash-Next
constexpr uint32_t kWidth = 640;
constexpr uint32_t kWeightRows = 2 * kWidth;
constexpr uint32_t kRowsMax = 8;
constexpr std::array<uint32_t, 5> kRowCounts = {1, 2, 4, 7, 8};
// ggml's block: four scale bytes, then for each sixteen values 8 bytes, the low nibbles of which
// are values 0 to 7 and the high ones 8 to 15.
constexpr size_t kGgmlBlockValues = 64;
constexpr size_t kGgmlBlockBytes = 36;
constexpr size_t kRowBytes = kHidden / kGgmlBlockValues * kGgmlBlockBytes;

// One code of a row of ggml's blocks.
uint32_t GgmlCode(const std::byte* row, uint32_t k) {
  const std::byte* block = row + k / kGgmlBlockValues * kGgmlBlockBytes;
  const uint32_t in_sub_block = k % 16;
  const std::byte byte = block[4 + k % kGgmlBlockValues / 16 * 8 + in_sub_block % 8];
  const auto value = std::to_integer<uint32_t>(byte);
  return in_sub_block < 8 ? value & 15 : value >> 4;
}

// The gate and up rows of ggml's weights in Hearth's layout, multipliers 1.
std::vector<std::byte> Repack(const ExpertLayout& layout, const std::vector<std::byte>& rows) {
  std::vector<std::byte> blob(layout.stride_bytes());
  for (const Projection p : {Projection::kGate, Projection::kUp}) {
    for (uint32_t n = 0; n < kWidth; ++n) {
      const std::byte* row = rows.data() + (n + (p == Projection::kUp ? kWidth : 0)) * kRowBytes;
      std::byte* band =
          blob.data() + layout.projection_offset_bytes(p) + n / 16 * layout.band_bytes(p);
      const size_t lane = n % 16;
      for (uint32_t k = 0; k < kHidden; ++k) {
        std::byte& at = band[k / 16 * 128 + k % 16 / 8 * 64 + lane * 4 + k % 4];
        at |= static_cast<std::byte>(GgmlCode(row, k) << (k % 8 < 4 ? 0 : 4));
      }
      for (uint32_t b = 0; b < kHidden / 16; ++b) {
        band[size_t{kHidden} * 8 + b * 16 + lane] = row[b / 4 * kGgmlBlockBytes + b % 4];
      }
    }
    const float one = 1;
    std::memcpy(blob.data() + layout.scale_offset_bytes(p), &one, sizeof(one));
  }
  return blob;
}

// Weights and activations in both forms, and the outputs of both.
struct Problem {
  ExpertLayout layout = {ExpertFormat::kNvfp4, kHidden, kWidth};
  const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(GGML_TYPE_NVFP4);
  std::vector<std::byte> ggml_weights = std::vector<std::byte>(kWeightRows * kRowBytes);
  std::vector<std::byte> ggml_rows;
  size_t ggml_row_bytes = ggml_row_size(traits->vec_dot_type, kHidden);
  std::vector<std::byte> blob;
  std::vector<int8_t> q = std::vector<int8_t>(size_t{kRowsMax} * kHidden);
  std::vector<float> x_scale = std::vector<float>(size_t{kRowsMax} * kHidden / 32);
  std::vector<int32_t> sum16 = std::vector<int32_t>(size_t{kRowsMax} * kHidden / 16);
  std::vector<float> dots = std::vector<float>(size_t{kRowsMax} * kWeightRows);  // ggml's
  std::vector<float> h = std::vector<float>(size_t{kRowsMax} * kWidth);          // Hearth's

  Problem() {
    Prng prng(1);
    std::vector<float> w(size_t{kWeightRows} * kHidden);
    for (float& v : w) v = static_cast<float>(prng.Uniform() - 0.5);
    std::vector<float> x(size_t{kRowsMax} * kHidden);
    for (float& v : x) v = static_cast<float>(prng.Uniform() - 0.5);
    traits->from_float(w.data(), ggml_weights.data(), static_cast<int64_t>(w.size()));
    blob = Repack(layout, ggml_weights);
    ggml_rows.resize(kRowsMax * ggml_row_bytes);
    const auto to_row = ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float;
    to_row(x.data(), ggml_rows.data(), static_cast<int64_t>(x.size()));
    FindCpuKernels("scalar")->quantize_rows(
        {x.data(), kHidden, kRowsMax, kHidden, q.data(), x_scale.data(), sum16.data()});
  }

  // Every weight row is used for all activations while it lies in the first-level cache.
  void RunGgml(uint32_t rows) {
    for (size_t n = 0; n < kWeightRows; ++n) {
      for (size_t t = 0; t < rows; ++t) {
        traits->vec_dot(kHidden, &dots[t * kWeightRows + n], 0, &ggml_weights[n * kRowBytes], 0,
                        &ggml_rows[t * ggml_row_bytes], 0, 1);
      }
    }
  }
  void RunHearth(const CpuKernels& kernels, uint32_t rows) {
    const QuantizedRows view = {q.data(), x_scale.data(), sum16.data(), rows, kHidden};
    kernels.expert_gate_up({&layout, blob.data(), view, nullptr, kHidden, rows, h.data(), kWidth, 0,
                            BandCount(kWidth)});
  }
  // The largest difference from silu(gate) * up of ggml's dots, over the largest such value.
  double Difference(uint32_t rows) const {
    double worst = 0;
    double largest = 0;
    for (size_t t = 0; t < rows; ++t) {
      for (size_t n = 0; n < kWidth; ++n) {
        const double gate = dots[t * kWeightRows + n];
        const double expected = gate / (1 + std::exp(-gate)) * dots[t * kWeightRows + kWidth + n];
        worst = std::max(worst, std::abs(expected - h[t * kWidth + n]));
        largest = std::max(largest, std::abs(expected));
      }
    }
    return worst / largest;
  }
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Work>
double Microseconds(Clock* clock, const Work& work) {
  const int64_t start_ns = clock->NowNs();
  work();
  return static_cast<double>(clock->NowNs() - start_ns) * 1e-3;
}

// times[0]: ggml; the others: the rows of `kernels`, in order. Every turn runs each once.
std::vector<std::vector<double>> TakeTurns(Problem* problem,
                                           const std::vector<const CpuKernels*>& kernels,
                                           uint32_t rows, int turns) {
  SteadyClock clock;
  std::vector<std::vector<double>> times(kernels.size() + 1);
  for (int turn = -3; turn < turns; ++turn) {
    for (size_t i = 0; i < times.size(); ++i) {
      const auto work = [&] {
        if (i == 0) problem->RunGgml(rows);
        if (i != 0) problem->RunHearth(*kernels[i - 1], rows);
      };
      work();  // its weights are in the cache and the core at the clock of its instructions
      const double us = Microseconds(&clock, work);
      if (turn >= 0) times[i].push_back(us);
    }
  }
  return times;
}

bool SameResults(Problem* problem, const std::vector<const CpuKernels*>& kernels) {
  problem->RunGgml(kRowsMax);
  for (const CpuKernels* row : kernels) {
    problem->RunHearth(*row, kRowsMax);
    const double difference = problem->Difference(kRowsMax);
    if (!(difference < 0.01)) {  // ggml rounds the activations' scales to fp16
      std::cerr << IsaName(row->isa) << " differs from ggml by " << difference << "\n";
      return false;
    }
  }
  return true;
}

// The rows of this processor, each kernel once.
std::vector<const CpuKernels*> Contenders() {
  const CpuFeatures have = DetectCpuFeatures();
  std::vector<const CpuKernels*> kernels;
  for (const CpuKernels& row : AllCpuKernels()) {
    if (row.isa == Isa::kScalar || !Supports(have, row.isa)) continue;
    if (!kernels.empty() && kernels.back()->expert_gate_up.fn == row.expert_gate_up.fn) {
      kernels.pop_back();  // the better row has no kernel of its own
    }
    kernels.push_back(&row);
  }
  return kernels;
}

int Main(int turns) {
  ggml_cpu_init();
  const std::vector<const CpuKernels*> kernels = Contenders();
  Problem problem;
  if (!SameResults(&problem, kernels)) return 1;
  constexpr double kWeights = 1.0 * kWeightRows * kHidden;
  std::string json;
  std::cout << "| rows | ggml us | kernels | us | G weights/s | times ggml "
               "|\n|---|---|---|---|---|---|\n";
  for (const uint32_t rows : kRowCounts) {
    const auto times = TakeTurns(&problem, kernels, rows, turns);
    const double ggml_us = Median(times[0]);
    for (size_t i = 0; i < kernels.size(); ++i) {
      const std::string isa(IsaName(kernels[i]->isa));
      const double us = Median(times[i + 1]);
      std::vector<double> ratios;
      for (size_t turn = 0; turn < times[0].size(); ++turn) {
        ratios.push_back(times[0][turn] / times[i + 1][turn]);
      }
      const double ratio = Median(ratios);
      std::cout << absl::StreamFormat("| %d | %.1f | %s | %.1f | %.1f | %.2f |\n", rows, ggml_us,
                                      isa, us, kWeights / us * 1e-3, ratio);
      json += absl::StrFormat(
          "%s{\"rows\":%d,\"isa\":\"%s\",\"ggml_us\":%.2f,\"us\":%.2f,\"ratio\":%.3f}",
          json.empty() ? "" : ",", rows, isa, ggml_us, us, ratio);
    }
  }
  std::cout << "{\"turns\":" << turns << ",\"results\":[" << json << "]}\n";
  return 0;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  int turns = 301;
  if (argc > 2 || (argc == 2 && (!absl::SimpleAtoi(argv[1], &turns) || turns < 1))) {
    std::cerr << "usage: compare_ggml [turns]\n";
    return 2;
  }
  return hearth::Main(turns);
}
