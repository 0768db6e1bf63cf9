// Owner of a CUDA graph: a recorded sequence of launches that is started by one call.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "runtime/base/unique_handle.h"

struct CUgraphExec_st;  // what cudaGraphExec_t points to

namespace hearth {

struct GraphTraits {
  using Type = CUgraphExec_st*;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type graph);
};

// Device addresses and launch shapes are those of the recording; what the kernels read from memory
// may differ from launch to launch. One launch of a graph at a time.
class UniqueGraph {
 public:
  // Calls `record`, while what this thread enqueues on `stream` (and on streams that wait for its
  // events and are waited for again) is recorded instead of run. `record` must not allocate,
  // synchronise or use other streams; other threads may go on with theirs. On an error of `record`,
  // that error: the recording is dropped and the stream is usable again. The graph is uploaded to
  // the card before this returns, so that the first launch costs what the others do.
  static absl::StatusOr<UniqueGraph> Capture(
      CudaStreamView stream, absl::FunctionRef<absl::Status(CudaStreamView)> record);

  // Enqueues the whole graph on `stream`, of the GPU of the recording, and returns.
  absl::Status Launch(CudaStreamView stream) const;

  uint32_t node_count() const { return node_count_; }  // launches, copies and fills

 private:
  UniqueGraph(GpuId gpu, UniqueHandle<GraphTraits> graph, uint32_t node_count)
      : gpu_(gpu), graph_(std::move(graph)), node_count_(node_count) {}
  GpuId gpu_;
  UniqueHandle<GraphTraits> graph_;
  uint32_t node_count_;
};

}  // namespace hearth
