// How fast experts get to a card: single blobs of 2.76 MB from pinned and from registered memory,
// by the copy engine with 1 to 8 under way and by kernels that read host memory, alone and while
// the CPU's threads read memory at their full rate; beside the link's rate for large copies, and
// expert kernels that read their weights over the link without any copy. Prints tables.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/link_copy.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kBlobBytes = 2'764'816;
constexpr uint64_t kStrideBytes = 2'768'896;
constexpr uint32_t kBlobs = 400;    // of 1.1 GB of host memory
constexpr uint32_t kUploads = 400;  // of one measurement
constexpr uint64_t kLargeBytes = 256_MiB;

// Threads that read memory as the CPU's experts do.
class MemoryReaders {
 public:
  explicit MemoryReaders(uint32_t count) : memory_(*AnonymousMapping::Create(count * 256_MiB)) {
    std::memset(memory_.data().data(), 1, memory_.data().size());
    for (uint32_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, i] { ReadMain(memory_.data().subspan(i * 256_MiB, 256_MiB)); });
    }
  }
  ~MemoryReaders() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  uint64_t read_bytes() const { return read_bytes_.load(); }

 private:
  void ReadMain(std::span<const std::byte> bytes) {
    constexpr uint64_t kStep = 1_MiB;
    uint64_t sum = 0;
    while (!stopping_) {
      for (uint64_t at = 0; at < bytes.size() && !stopping_; at += kStep) {
        const auto* words = reinterpret_cast<const uint64_t*>(bytes.data() + at);
        for (uint64_t i = 0; i < kStep / 8; ++i) sum += words[i];
        read_bytes_.fetch_add(kStep, std::memory_order_relaxed);
      }
    }
    sum_.fetch_add(sum);
  }
  AnonymousMapping memory_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> read_bytes_{0};
  std::atomic<uint64_t> sum_{0};
  std::vector<std::thread> threads_;
};

// One piece of host memory as a card sees it.
struct Source {
  const char* name;
  std::span<const std::byte> host;
  const std::byte* card = nullptr;
};

struct Rate {
  double upload = 0;  // bytes per second
  double cpu = 0;     // what the readers read meanwhile
};

class Bench {
 public:
  static absl::Status Run();

 private:
  Bench(const GpuInfo& gpu, UniqueStream stream, DeviceBuffer slots)
      : gpu_(gpu), stream_(std::move(stream)), slots_(std::move(slots)) {}
  absl::StatusOr<Rate> Measure(uint32_t in_flight, const MemoryReaders* readers,
                               absl::FunctionRef<absl::Status(uint32_t)> begin);
  absl::Status Engine(const Source& source, const MemoryReaders* readers, const char* beside);
  absl::Status Kernels(const Source& source, const MemoryReaders* readers, const char* beside);
  absl::Status Large(const Source& source);
  absl::Status ExpertsOverTheLink(const Source& source);
  absl::Status MixedExperts(const Source& source, uint32_t experts, uint32_t resident,
                            bool one_launch);
  std::byte* Slot(uint32_t i) { return slots_.data() + i % kBlobs * kStrideBytes; }

  const GpuInfo gpu_;
  UniqueStream stream_;
  DeviceBuffer slots_;
  SteadyClock clock_;
  Prng prng_{5};
};

// Uploads of blobs in any order with at most `in_flight` under way, as an upload queue has them.
absl::StatusOr<Rate> Bench::Measure(uint32_t in_flight, const MemoryReaders* readers,
                                    absl::FunctionRef<absl::Status(uint32_t)> begin) {
  std::vector<UniqueEvent> marks;
  for (uint32_t i = 0; i < in_flight; ++i) {
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent mark, UniqueEvent::Create(gpu_.id, EventKind::kUntimed));
    marks.push_back(std::move(mark));
  }
  HEARTH_RETURN_IF_ERROR(begin(0));
  HEARTH_RETURN_IF_ERROR(stream_.Synchronize());
  const uint64_t read_before = readers == nullptr ? 0 : readers->read_bytes();
  const int64_t begin_ns = clock_.NowNs();
  for (uint32_t i = 0; i < kUploads; ++i) {
    UniqueEvent& mark = marks[i % in_flight];
    for (bool passed = false; !passed;) {
      HEARTH_ASSIGN_OR_RETURN(passed, mark.HasPassed());
    }
    HEARTH_RETURN_IF_ERROR(begin(static_cast<uint32_t>(prng_.Below(kBlobs))));
    HEARTH_RETURN_IF_ERROR(mark.Record(stream_.view()));
  }
  HEARTH_RETURN_IF_ERROR(stream_.Synchronize());
  const double seconds = static_cast<double>(clock_.NowNs() - begin_ns) * 1e-9;
  const uint64_t read = readers == nullptr ? 0 : readers->read_bytes() - read_before;
  return Rate{.upload = static_cast<double>(kUploads * kBlobBytes) / seconds,
              .cpu = static_cast<double>(read) / seconds};
}

absl::Status Bench::Engine(const Source& source, const MemoryReaders* readers, const char* beside) {
  for (const uint32_t in_flight : {1u, 2u, 4u, 8u}) {
    HEARTH_ASSIGN_OR_RETURN(const Rate rate, Measure(in_flight, readers, [&](uint32_t blob) {
                              return CopyToDevice(
                                  source.host.subspan(blob * kStrideBytes, kBlobBytes), slots_,
                                  blob * kStrideBytes, stream_.view());
                            }));
    std::printf("engine  %-10s %-10s %2u under way    %5.1f GB/s   CPU reads %5.1f GB/s\n",
                source.name, beside, in_flight, rate.upload * 1e-9, rate.cpu * 1e-9);
  }
  return absl::OkStatus();
}

absl::Status Bench::Kernels(const Source& source, const MemoryReaders* readers,
                            const char* beside) {
  for (const uint32_t blocks : {2u, 4u, 8u, 16u, 32u, 64u}) {
    HEARTH_ASSIGN_OR_RETURN(const Rate rate, Measure(2, readers, [&](uint32_t blob) {
                              return LaunchLinkCopy(source.card + blob * kStrideBytes, Slot(blob),
                                                    kBlobBytes, blocks, stream_.view());
                            }));
    std::printf("kernel  %-10s %-10s %2u blocks       %5.1f GB/s   CPU reads %5.1f GB/s\n",
                source.name, beside, blocks, rate.upload * 1e-9, rate.cpu * 1e-9);
  }
  return absl::OkStatus();
}

absl::Status Bench::Large(const Source& source) {
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    const int64_t begin_ns = clock_.NowNs();
    HEARTH_RETURN_IF_ERROR(CopyToDevice(source.host.first(kLargeBytes), slots_, 0, stream_.view()));
    HEARTH_RETURN_IF_ERROR(stream_.Synchronize());
    const double seconds = static_cast<double>(clock_.NowNs() - begin_ns) * 1e-9;
    best = std::max(best, static_cast<double>(kLargeBytes) / seconds);
  }
  std::printf("engine  %-10s 256 MiB at once        %5.1f GB/s\n", source.name, best * 1e-9);
  return absl::OkStatus();
}

// Experts whose weights are read over the link by the kernels that use them, alone and among
// others of the same call that are in the card's memory, in two launches and in one.
absl::Status Bench::ExpertsOverTheLink(const Source& source) {
  for (const bool one_launch : {false, true}) {
    for (const uint32_t resident : {0u, 30u}) {
      for (const uint32_t experts : {0u, 1u, 2u, 4u, 8u}) {
        if (resident + experts == 0) continue;
        HEARTH_RETURN_IF_ERROR(MixedExperts(source, experts, resident, one_launch));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Bench::MixedExperts(const Source& source, uint32_t experts, uint32_t resident,
                                 bool one_launch) {
  constexpr uint32_t kHidden = 2560, kWidth = 640;
  const ExpertLayout layout{.format = ExpertFormat::kNvfp4, .hidden = kHidden, .width = kWidth};
  const uint32_t count = experts + resident;
  const ExpertFfnDesc desc{.layout = layout,
                           .item_count = count,
                           .rows_max = 1,
                           .entry_count = count,
                           .allows_one_launch = one_launch};
  HEARTH_ASSIGN_OR_RETURN(const ExpertFfnPlan plan, PlanExpertFfn(desc, gpu_.limits));
  std::vector<ExpertFfnItem> items;
  std::vector<ExpertFfnEntry> entries;
  for (uint32_t i = 0; i < count; ++i) {
    // Those of the link are spread over the list.
    const bool is_far = (i + 1) * experts / count > i * experts / count;
    const std::byte* from = is_far ? source.card : slots_.data();
    items.push_back(
        {.blob = from + i * 37 % kBlobs * kStrideBytes, .entry_begin = i, .entry_count = 1});
    entries.push_back({.x_row = 0, .y_row = i});
  }
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer rows, DeviceBuffer::Create(gpu_.id, 1_MiB));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer y, DeviceBuffer::Create(gpu_.id, 1_MiB));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer lists, DeviceBuffer::Create(gpu_.id, 8_KiB));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer workspace,
                          DeviceBuffer::Create(gpu_.id, plan.workspace_bytes));
  HEARTH_RETURN_IF_ERROR(FillBytes(rows, std::byte{0}, stream_.view()));
  HEARTH_RETURN_IF_ERROR(ResetExpertFfnWorkspace(workspace, stream_.view()));
  HEARTH_RETURN_IF_ERROR(CopyToDevice(std::as_bytes(std::span(items)), lists, 0, stream_.view()));
  HEARTH_RETURN_IF_ERROR(
      CopyToDevice(std::as_bytes(std::span(entries)), lists, 4_KiB, stream_.view()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(gpu_.id));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(gpu_.id));
  const ExpertFfnArgs args{.items = reinterpret_cast<const ExpertFfnItem*>(lists.data()),
                           .entries = reinterpret_cast<const ExpertFfnEntry*>(lists.data() + 4_KiB),
                           .q = reinterpret_cast<const int8_t*>(rows.data()),
                           .scale = reinterpret_cast<const float*>(rows.data() + 64_KiB),
                           .sum16 = reinterpret_cast<const int32_t*>(rows.data() + 128_KiB),
                           .y = reinterpret_cast<float*>(y.data()),
                           .y_stride = kHidden,
                           .workspace = workspace.data()};
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream_.view()));
    HEARTH_RETURN_IF_ERROR(LaunchExpertFfn(desc, plan, args, stream_.view()));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream_.view()));
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
    best = std::min(best, seconds);
  }
  std::printf("experts %-10s %s, %2u resident, %u over the link  %5.1f GB/s   %6.1f us\n",
              source.name, one_launch ? "one launch  " : "two launches", resident, experts,
              static_cast<double>(experts * kBlobBytes) / best * 1e-9, best * 1e6);
  return absl::OkStatus();
}

absl::Status Bench::Run() {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer slots, DeviceBuffer::Create(gpu.id, kBlobs * kStrideBytes));
  Bench bench(gpu, std::move(stream), std::move(slots));
  const uint64_t bytes = kBlobs * kStrideBytes / 4096 * 4096;

  HEARTH_ASSIGN_OR_RETURN(const PinnedBuffer pinned, PinnedBuffer::Create(gpu.id, bytes));
  HEARTH_ASSIGN_OR_RETURN(AnonymousMapping mapping, AnonymousMapping::Create(bytes));
  std::memset(mapping.data().data(), 0, bytes);
  const int64_t begin_ns = bench.clock_.NowNs();
  HEARTH_ASSIGN_OR_RETURN(const RegisteredMemory registered,
                          RegisteredMemory::Create(gpu.id, mapping.data().first(bytes),
                                                   RegisteredMemory::Access::kReadWrite));
  std::printf("registering %s took %.0f ms\n", FormatBytes(bytes).c_str(),
              static_cast<double>(bench.clock_.NowNs() - begin_ns) * 1e-6);
  const Source sources[] = {{"pinned", pinned.data(), pinned.device_data()},
                            {"registered", registered.range(), registered.device_data()}};
  for (const Source& source : sources) {
    HEARTH_RETURN_IF_ERROR(bench.Large(source));
    HEARTH_RETURN_IF_ERROR(bench.Engine(source, nullptr, "alone"));
    HEARTH_RETURN_IF_ERROR(bench.Kernels(source, nullptr, "alone"));
    HEARTH_RETURN_IF_ERROR(bench.ExpertsOverTheLink(source));
  }
  const uint32_t cores = std::max(std::thread::hardware_concurrency(), 2u);
  for (const uint32_t readers : {cores / 2, cores - 2}) {
    const MemoryReaders memory_readers(readers);
    char beside[32];
    std::snprintf(beside, sizeof(beside), "%u readers", readers);
    HEARTH_RETURN_IF_ERROR(bench.Engine(sources[1], &memory_readers, beside));
    HEARTH_RETURN_IF_ERROR(bench.Kernels(sources[1], &memory_readers, beside));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main() {
  const absl::Status status = hearth::Bench::Run();
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
