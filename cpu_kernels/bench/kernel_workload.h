// One kernel at one shape for a number of rows, as the benchmark runs it: what lies in memory, how
// the work splits over workers, and the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/units.h"

namespace hearth {

inline constexpr uint64_t kLineBytes = 64;

// What all workers of one run share: an item is everything that comes from the memory level under
// test (weights, key-value rows, states, activations of row kernels). A walk over many items reads
// DRAM; one item again and again stays in a cache.
struct BenchItem {
  std::byte* in = nullptr;   // never written: the same bytes in every run
  std::byte* out = nullptr;  // written, or read and written
  // What this worker will most likely run next, as the product tells its kernels; null: not known.
  const std::byte* next_in = nullptr;
  uint32_t next_begin = 0;  // share
};

struct WorkloadFacts {
  uint64_t in_bytes = 0;       // of one item
  uint64_t out_bytes = 0;      // of one item
  uint64_t touched_bytes = 0;  // distinct bytes of an item that a run touches
  uint64_t moved_bytes = 0;    // the same, where what is read and written counts twice
  uint64_t weight_count = 0;   // zero: the kernel reads no weights
  // Shares of one item that workers divide among them, as the product does with bands of a matrix;
  // zero: one call takes a whole item, and each worker has items of its own.
  uint32_t share_count = 0;
  uint32_t runs_per_job = 1;  // items (for each worker, if they are its own) between two barriers
};

class KernelWorkload {
 public:
  explicit KernelWorkload(const WorkloadFacts& facts) : facts_(facts) {}
  virtual ~KernelWorkload() = default;
  KernelWorkload(const KernelWorkload&) = delete;
  KernelWorkload& operator=(const KernelWorkload&) = delete;

  const WorkloadFacts& facts() const { return facts_; }
  bool splits() const { return facts_.share_count > 0; }

  // Shares [begin, end) of one run on one item; a workload without shares ignores them. Workers
  // call it at once, with different shares or items.
  virtual void Run(const CpuKernels& kernels, const BenchItem& item, uint32_t worker,
                   uint32_t begin, uint32_t end) const = 0;

 private:
  const WorkloadFacts facts_;
};

// A kernel at one shape, for any number of rows.
struct KernelFamily {
  std::string name;                // "expert_gate_up/nvfp4"
  std::string shape;               // "1280x2560"
  size_t kernel_offset_bytes = 0;  // of the kernel in CpuKernels
  bool rows_matter = true;         // false: one case stands for any number of rows
  std::string format{};            // of an expert kernel's weights; otherwise empty
  // Valid bytes for the `in` part of an item. Items that differ with the number of rows take any
  // cut of these bytes.
  std::function<void(std::span<std::byte>)> fill{};
  std::function<std::unique_ptr<KernelWorkload>(uint32_t rows, uint32_t worker_count)> make{};
};

template <class Member>
size_t KernelOffsetBytes(Member member) {
  const CpuKernels& row = AllCpuKernels().front();
  return static_cast<size_t>(reinterpret_cast<const std::byte*>(&(row.*member)) -
                             reinterpret_cast<const std::byte*>(&row));
}

// Calls the kernel that `member` names in the table. MakeArgs: Args(item, worker, begin, end, call)
// for call in [0, calls_per_run).
template <class Member, class MakeArgs>
class CallWorkload final : public KernelWorkload {
 public:
  CallWorkload(Member member, const WorkloadFacts& facts, uint32_t calls_per_run,
               MakeArgs make_args)
      : KernelWorkload(facts),
        member_(member),
        calls_per_run_(calls_per_run),
        make_args_(std::move(make_args)) {}
  void Run(const CpuKernels& kernels, const BenchItem& item, uint32_t worker, uint32_t begin,
           uint32_t end) const override {
    for (uint32_t call = 0; call < calls_per_run_; ++call) {
      (kernels.*member_).fn(make_args_(item, worker, begin, end, call));
    }
  }

 private:
  const Member member_;
  const uint32_t calls_per_run_;
  const MakeArgs make_args_;
};

template <class Member, class MakeArgs>
std::unique_ptr<KernelWorkload> MakeCalls(Member member, const WorkloadFacts& facts,
                                          uint32_t calls_per_run, MakeArgs make_args) {
  return std::make_unique<CallWorkload<Member, MakeArgs>>(member, facts, calls_per_run,
                                                          std::move(make_args));
}

// Zeroed memory that starts on a cache line.
template <class T>
class LineArray {
 public:
  explicit LineArray(size_t count) : lines_((count * sizeof(T) + kLineBytes - 1) / kLineBytes) {}
  T* data() { return reinterpret_cast<T*>(lines_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(lines_.data()); }

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };
  std::vector<Line> lines_;
};

}  // namespace hearth
