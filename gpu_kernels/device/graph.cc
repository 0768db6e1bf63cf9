#include "gpu_kernels/device/graph.h"

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// The recording before it can be launched.
struct RecordingTraits {
  using Type = cudaGraph_t;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type graph) { (void)cudaGraphDestroy(graph); }
};
using UniqueRecording = UniqueHandle<RecordingTraits>;

absl::StatusOr<UniqueRecording> Record(CudaStreamView stream,
                                       absl::FunctionRef<absl::Status(CudaStreamView)> record) {
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                 "begin of a graph's recording"));
  const absl::Status recorded = record(stream);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream.get(), &graph);
  UniqueRecording owner(graph);
  if (!recorded.ok()) {
    (void)cudaGetLastError();
    return recorded;
  }
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      ended, "recording of a graph (no allocation, no synchronisation, every stream joined)"));
  return owner;
}

}  // namespace

void GraphTraits::Close(Type graph) { (void)cudaGraphExecDestroy(graph); }

absl::StatusOr<UniqueGraph> UniqueGraph::Capture(
    CudaStreamView stream, absl::FunctionRef<absl::Status(CudaStreamView)> record) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const UniqueRecording recording, Record(stream, record));
  size_t node_count = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaGraphGetNodes(recording.get(), nullptr, &node_count), "nodes of a graph"));
  cudaGraphExec_t exec = nullptr;
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGraphInstantiate(&exec, recording.get(), 0),
                                    absl::StrCat("graph of ", node_count, " nodes")));
  UniqueHandle<GraphTraits> graph(exec);
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaGraphUpload(graph.get(), stream.get()), "upload of a graph"));
  return UniqueGraph(stream.gpu(), std::move(graph), static_cast<uint32_t>(node_count));
}

absl::Status UniqueGraph::Launch(CudaStreamView stream) const {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  return CudaStatus(cudaGraphLaunch(graph_.get(), stream.get()), "launch of a graph");
}

}  // namespace hearth
