// Speed of dense products on the GPU at the shapes of Flash-Next: microseconds a call within a
// recorded graph, and the share of the card's copy bandwidth (read plus write) of the same run.
// Weights are read from other memory at every call, several times the cache in all.
//   gpu_dense_bench [windows|prompts [CASE]]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/ops/dense/dense_gemm.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "gpu_kernels/ops/dense/quantize_rows.h"
#include "gpu_kernels/ops/dense/rotate_quantize.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr MatrixFormat kQ8 = MatrixFormat::kQ8;
constexpr MatrixFormat kBf16 = MatrixFormat::kBf16;
constexpr uint64_t kWeightBytes = 1_GiB;
constexpr uint64_t kActivationBytes = 256_MiB;
constexpr uint64_t kOutputBytes = 512_MiB;
constexpr uint64_t kBytesPerGraph = 600_MiB;
constexpr uint32_t kCallsMax = 200;
constexpr uint32_t kRounds = 7;

struct Shape {
  MatrixFormat format;
  uint32_t rows;
};
struct Case {
  std::string_view name;
  uint32_t cols;
  std::vector<Shape> shapes;
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Shape& s : shapes) sum += AlignUp(MatrixBytes(s.format, s.rows, cols), 64);
    return sum;
  }
};

std::vector<Case> Cases(std::string_view only) {
  std::vector<Case> cases = {
      {"qkv", 2560, {{kQ8, 10240}}},
      {"z", 2560, {{kQ8, 6144}}},
      {"qkv z a b", 2560, {{kQ8, 10240}, {kQ8, 6144}, {kBf16, 48}, {kBf16, 48}}},
      {"out / o", 6144, {{kQ8, 2560}}},
      {"q", 2560, {{kQ8, 12288}}},
      {"q k v", 2560, {{kQ8, 12288}, {kBf16, 512}, {kBf16, 512}}},
      {"hc down", 10240, {{kQ8, 320}}},
      {"hc down inject", 10240, {{kQ8, 320}, {kBf16, 4}}},
      {"hc up", 320, {{kQ8, 10240}}},
      {"lm_head", 2560, {{kQ8, 248320}}},
      {"router", 2560, {{kBf16, 512}}},
      {"router shared", 2560, {{kQ8, 640}, {kQ8, 640}, {kBf16, 512}, {kBf16, 1}}},
      {"shared down", 640, {{kQ8, 2560}}},
      {"a b", 2560, {{kBf16, 48}, {kBf16, 48}}}};
  std::erase_if(cases, [&](const Case& c) { return !only.empty() && c.name != only; });
  return cases;
}

struct Memory {
  DeviceBuffer weights, activations, outputs;
};

// Random bytes in the low bits, so that fp16 scales and fp32 values are ordinary numbers.
absl::Status FillRandom(const DeviceBuffer& buffer, const UniqueStream& stream) {
  constexpr uint64_t kPieceBytes = 32_MiB;
  Prng prng(9);
  std::vector<uint32_t> piece(kPieceBytes / 4);
  for (uint32_t& word : piece) word = static_cast<uint32_t>(prng.Next()) & 0xBFFFBFFFu;
  for (uint64_t at = 0; at < buffer.bytes(); at += kPieceBytes) {
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(std::as_bytes(std::span(piece)), buffer, at, stream.view()));
  }
  return stream.Synchronize();
}

absl::StatusOr<double> MedianSec(const UniqueGraph& graph, uint32_t calls,
                                 const UniqueStream& stream) {
  std::vector<double> times;
  for (uint32_t round = 0; round < kRounds; ++round) {
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(graph.Launch(stream.view()));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
    times.push_back(seconds / calls);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// Bytes read plus bytes written a second.
absl::StatusOr<double> CopyRate(const Memory& memory, const UniqueStream& stream) {
  constexpr uint32_t kCopies = 8;
  const uint64_t bytes = memory.weights.bytes() / 2;
  double best_sec = 1;
  for (uint32_t round = 0; round < kRounds; ++round) {
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    for (uint32_t i = 0; i < kCopies; ++i) {
      HEARTH_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(memory.weights.data() + bytes, memory.weights.data(), bytes,
                                     cudaMemcpyDeviceToDevice, stream.view().get()),
                     "copy"));
    }
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
    best_sec = std::min(best_sec, seconds / kCopies);
  }
  return 2.0 * static_cast<double>(bytes) / best_sec;
}

DenseMatmulArgs ArgsOf(const Case& c, uint32_t rows, uint64_t weight_offset, const Memory& memory) {
  DenseMatmulArgs args;
  args.rows = rows;
  args.cols = c.cols;
  const std::byte* x = memory.activations.data();
  args.x = {.x = reinterpret_cast<const float*>(x),
            .x_stride = c.cols,
            .q = reinterpret_cast<const int8_t*>(x),
            .scale = reinterpret_cast<const float*>(x)};
  uint64_t y_offset = 0;
  for (const Shape& s : c.shapes) {
    args.outputs[args.output_count++] = {
        .w = {s.format, s.rows, c.cols, memory.weights.data() + weight_offset},
        .y = reinterpret_cast<float*>(memory.outputs.data() + y_offset),
        .y_stride = s.rows};
    weight_offset += AlignUp(MatrixBytes(s.format, s.rows, c.cols), 64);
    y_offset += uint64_t{rows} * s.rows * 4;
  }
  return args;
}

using Launch = std::function<absl::Status(const DenseMatmulArgs&, CudaStreamView)>;

absl::StatusOr<double> CallSec(const Case& c, uint32_t rows, uint32_t calls, const Launch& launch,
                               const Memory& memory, const UniqueStream& stream) {
  const uint64_t places = memory.weights.bytes() / c.bytes();
  HEARTH_ASSIGN_OR_RETURN(
      const UniqueGraph graph,
      UniqueGraph::Capture(stream.view(), [&](CudaStreamView view) -> absl::Status {
        for (uint32_t i = 0; i < calls; ++i) {
          HEARTH_RETURN_IF_ERROR(launch(ArgsOf(c, rows, i % places * c.bytes(), memory), view));
        }
        return absl::OkStatus();
      }));
  return MedianSec(graph, calls, stream);
}

absl::Status BenchWindows(std::string_view what, std::string_view only, const Launch& launch,
                          const Memory& memory, double copy_rate, const UniqueStream& stream) {
  constexpr uint32_t kRows[] = {1, 2, 4, 5, 8, 9, 16};
  std::printf("%-15s %8s %7s", std::string(what).c_str(), "MB", "floor");
  for (const uint32_t rows : kRows) std::printf("  %5u rows  ", rows);
  std::printf("\n");
  for (const Case& c : Cases(only)) {
    const double floor_sec = static_cast<double>(c.bytes()) / copy_rate;
    std::printf("%-15s %8.2f %7.2f", std::string(c.name).c_str(),
                static_cast<double>(c.bytes()) / 1e6, floor_sec * 1e6);
    const auto calls =
        static_cast<uint32_t>(std::clamp<uint64_t>(kBytesPerGraph / c.bytes(), 2, kCallsMax));
    for (const uint32_t rows : kRows) {
      HEARTH_ASSIGN_OR_RETURN(const double seconds,
                              CallSec(c, rows, calls, launch, memory, stream));
      std::printf("  %6.2f (%2.0f%%)", seconds * 1e6, 100 * floor_sec / seconds);
    }
    std::printf("\n");
  }
  return absl::OkStatus();
}

absl::Status BenchQuantisation(const Memory& memory, const UniqueStream& stream) {
  constexpr uint32_t kCalls = 50;
  const auto* x = reinterpret_cast<const float*>(memory.activations.data());
  std::byte* out = memory.outputs.data();
  for (const uint32_t rows : {1u, 8u, 2048u}) {
    for (const uint32_t cols : {2560u, 6144u}) {
      HEARTH_ASSIGN_OR_RETURN(
          const UniqueGraph quantise,
          UniqueGraph::Capture(stream.view(), [&](CudaStreamView view) -> absl::Status {
            for (uint32_t i = 0; i < kCalls; ++i) {
              HEARTH_RETURN_IF_ERROR(
                  LaunchQuantizeRows({x, cols, rows, cols, reinterpret_cast<int8_t*>(out),
                                      reinterpret_cast<float*>(out + 64_MiB),
                                      reinterpret_cast<int32_t*>(out + 128_MiB)},
                                     view));
            }
            return absl::OkStatus();
          }));
      HEARTH_ASSIGN_OR_RETURN(
          const UniqueGraph rotate,
          UniqueGraph::Capture(stream.view(), [&](CudaStreamView view) -> absl::Status {
            for (uint32_t i = 0; i < kCalls; ++i) {
              HEARTH_RETURN_IF_ERROR(LaunchRotateQuantizeRows(
                  {x, cols, rows, cols, nullptr, reinterpret_cast<int8_t*>(out),
                   reinterpret_cast<float*>(out + 64_MiB),
                   reinterpret_cast<int32_t*>(out + 128_MiB)},
                  view));
            }
            return absl::OkStatus();
          }));
      HEARTH_ASSIGN_OR_RETURN(const double quantise_sec, MedianSec(quantise, kCalls, stream));
      HEARTH_ASSIGN_OR_RETURN(const double rotate_sec, MedianSec(rotate, kCalls, stream));
      std::printf("%4u rows of %4u: quantise %6.2f us, rotate and quantise %6.2f us\n", rows, cols,
                  quantise_sec * 1e6, rotate_sec * 1e6);
    }
  }
  return absl::OkStatus();
}

absl::Status BenchPrompts(std::string_view what, std::string_view only, const Launch& launch,
                          const Memory& memory, const UniqueStream& stream) {
  constexpr uint32_t kRows[] = {64, 128, 256, 1024, 2048, 4096};
  constexpr uint32_t kCalls = 6;
  std::printf("%-30s", std::string(what).c_str());
  for (const uint32_t rows : kRows) std::printf("  %5u rows    ", rows);
  std::printf("\n");
  for (const Case& c : Cases(only)) {
    if (c.bytes() > 100'000'000) continue;
    std::printf("%-30s", std::string(c.name).c_str());
    uint64_t weights = 0;
    for (const Shape& s : c.shapes) weights += uint64_t{s.rows} * c.cols;
    for (const uint32_t rows : kRows) {
      HEARTH_ASSIGN_OR_RETURN(const double seconds,
                              CallSec(c, rows, kCalls, launch, memory, stream));
      std::printf("  %8.2f (%4.0f)", seconds * 1e6,
                  2.0 * static_cast<double>(weights) * rows / seconds / 1e12);
    }
    std::printf("\n");
  }
  return absl::OkStatus();
}

absl::Status Run(std::string_view what, std::string_view only) {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer weights, DeviceBuffer::Create(gpu.id, kWeightBytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer activations, DeviceBuffer::Create(gpu.id, kActivationBytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer outputs, DeviceBuffer::Create(gpu.id, kOutputBytes));
  const Memory memory = {std::move(weights), std::move(activations), std::move(outputs)};
  HEARTH_RETURN_IF_ERROR(FillRandom(memory.weights, stream));
  HEARTH_RETURN_IF_ERROR(FillRandom(memory.activations, stream));
  HEARTH_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(memory, stream));
  std::printf("%s: copies %.0f GB/s\n", gpu.name.c_str(), copy_rate / 1e9);
  HEARTH_RETURN_IF_ERROR(FillRandom(memory.weights, stream));
  if (what != "prompts") {
    HEARTH_RETURN_IF_ERROR(BenchWindows("us", only, LaunchDenseMatmul, memory, copy_rate, stream));
    if (only.empty()) HEARTH_RETURN_IF_ERROR(BenchQuantisation(memory, stream));
  }
  if (what == "windows") return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer room,
                          DeviceBuffer::Create(gpu.id, GemmRoomBytes(4096, 10240)));
  HEARTH_RETURN_IF_ERROR(BenchPrompts(
      "with room for fp16: us (1e12/s)", only,
      [&](const DenseMatmulArgs& args, CudaStreamView view) {
        return LaunchDenseGemm(args, {.data = room.data(), .bytes = room.bytes()}, view);
      },
      memory, stream));
  HEARTH_RETURN_IF_ERROR(BenchPrompts(
      "without", only,
      [](const DenseMatmulArgs& args, CudaStreamView view) {
        return LaunchDenseGemm(args, GemmRoom(), view);
      },
      memory, stream));
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  const absl::Status status = hearth::Run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
