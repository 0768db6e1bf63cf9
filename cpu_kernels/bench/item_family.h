// Makes families of kernels that read no weights: fp32 arrays in, fp32 arrays out, one call for all
// rows or one for each.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "cpu_kernels/bench/bench_data.h"
#include "cpu_kernels/bench/kernel_workload.h"

namespace hearth {

// The arrays of one item, in fp32 values.
struct ItemFloats {
  uint64_t read = 0;
  uint64_t written = 0;
  uint64_t updated = 0;  // read and written again, in place
  bool call_per_row = false;
};

constexpr uint64_t kItemBytesPerJob = 1_MiB;  // so that a barrier is small beside the work

inline WorkloadFacts FactsOf(const ItemFloats& floats) {
  const uint64_t out = floats.written + floats.updated;
  WorkloadFacts facts{.in_bytes = AlignUp(floats.read * sizeof(float), kLineBytes),
                      .out_bytes = AlignUp(out * sizeof(float), kLineBytes),
                      .touched_bytes = (floats.read + out) * sizeof(float),
                      .moved_bytes = (floats.read + out + floats.updated) * sizeof(float)};
  facts.runs_per_job =
      static_cast<uint32_t>(std::clamp<uint64_t>(kItemBytesPerJob / facts.touched_bytes, 1, 1024));
  return facts;
}

// Where a call finds its arrays.
struct ItemCall {
  const float* in;
  float* out;
  uint32_t worker;
  uint32_t row;  // with call_per_row; otherwise 0
};

// floats_of: ItemFloats(rows). bind: (rows, worker_count) -> a function Args(const ItemCall&),
// which owns whatever else the kernel needs.
template <class Member, class FloatsOf, class Bind>
KernelFamily ItemFamily(std::string name, std::string shape, Member member, FloatsOf floats_of,
                        Bind bind) {
  KernelFamily family{.name = std::move(name),
                      .shape = std::move(shape),
                      .kernel_offset_bytes = KernelOffsetBytes(member)};
  family.fill = FillFloats;
  family.make = [member, floats_of, bind](uint32_t rows, uint32_t worker_count) {
    const ItemFloats floats = floats_of(rows);
    const auto args_of = bind(rows, worker_count);
    return MakeCalls(
        member, FactsOf(floats), floats.call_per_row ? rows : 1,
        [args_of](const BenchItem& item, uint32_t worker, uint32_t, uint32_t, uint32_t call) {
          return args_of(ItemCall{.in = reinterpret_cast<const float*>(item.in),
                                  .out = reinterpret_cast<float*>(item.out),
                                  .worker = worker,
                                  .row = call});
        });
  };
  return family;
}

}  // namespace hearth
