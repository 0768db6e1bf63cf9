// Owners of CUDA streams and events. Every object remembers its GPU and selects it before each
// call, so that which thread calls does not matter.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/unique_handle.h"

struct CUstream_st;  // what cudaStream_t and cudaEvent_t point to
struct CUevent_st;

namespace hearth {

// Borrowed; its owner outlives it. Without a default constructor nobody meets the default stream.
class CudaStreamView {
 public:
  CudaStreamView(GpuId gpu, CUstream_st* stream) : gpu_(gpu), stream_(stream) {}
  GpuId gpu() const { return gpu_; }
  CUstream_st* get() const { return stream_; }

 private:
  GpuId gpu_;
  CUstream_st* stream_;
};

struct StreamTraits {
  using Type = CUstream_st*;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type stream);
};
struct EventTraits {
  using Type = CUevent_st*;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type event);
};

// A stream that does not wait for the default stream. Dies before the program's last CUDA call.
class UniqueStream {
 public:
  static absl::StatusOr<UniqueStream> Create(GpuId gpu);
  CudaStreamView view() const { return {gpu_, stream_.get()}; }
  // Returns once everything enqueued so far has run, with the first error of it. For tests, tools
  // and shutdown.
  absl::Status Synchronize() const;

 private:
  UniqueStream(GpuId gpu, UniqueHandle<StreamTraits> stream)
      : gpu_(gpu), stream_(std::move(stream)) {}
  GpuId gpu_;
  UniqueHandle<StreamTraits> stream_;
};

// A point in a stream's work, with a time stamp.
class UniqueEvent {
 public:
  static absl::StatusOr<UniqueEvent> Create(GpuId gpu);
  absl::Status Record(CudaStreamView stream);
  // Waits for both, then the seconds between them, to about half a microsecond.
  static absl::StatusOr<double> SecondsBetween(const UniqueEvent& from, const UniqueEvent& to);

 private:
  UniqueEvent(GpuId gpu, UniqueHandle<EventTraits> event) : gpu_(gpu), event_(std::move(event)) {}
  GpuId gpu_;
  UniqueHandle<EventTraits> event_;
};

}  // namespace hearth
