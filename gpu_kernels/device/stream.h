// Owners of CUDA streams and events. Every object remembers its GPU and selects it before each
// call, so that which thread calls does not matter.
#pragma once

#include <cstdint>
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

// Whose blocks get a multiprocessor first where several streams have some waiting.
enum class StreamPriority : uint8_t { kNormal, kHigh };

// A stream that does not wait for the default stream. Dies before the program's last CUDA call.
class UniqueStream {
 public:
  static absl::StatusOr<UniqueStream> Create(GpuId gpu,
                                             StreamPriority priority = StreamPriority::kNormal);
  CudaStreamView view() const { return {gpu_, stream_.get()}; }
  // Whether everything enqueued so far has run; does not wait. The first error of it.
  absl::StatusOr<bool> HasEnded() const;
  // Returns once everything enqueued so far has run, with the first error of it. For tests, tools
  // and shutdown.
  absl::Status Synchronize() const;

 private:
  UniqueStream(GpuId gpu, UniqueHandle<StreamTraits> stream)
      : gpu_(gpu), stream_(std::move(stream)) {}
  GpuId gpu_;
  UniqueHandle<StreamTraits> stream_;
};

// A point in a stream's work. Without a time stamp it costs less.
enum class EventKind : uint8_t { kTimed, kUntimed };

class UniqueEvent {
 public:
  static absl::StatusOr<UniqueEvent> Create(GpuId gpu, EventKind kind = EventKind::kTimed);
  absl::Status Record(CudaStreamView stream);
  // Whether the work before the point has run, which it has for an event that was never recorded;
  // does not wait. An error of that work.
  absl::StatusOr<bool> HasPassed() const;
  // What is enqueued on `stream` from now on runs after the point.
  absl::Status HoldBack(CudaStreamView stream) const;
  // Of timed ones: waits for both, then the seconds between them, to about half a microsecond.
  static absl::StatusOr<double> SecondsBetween(const UniqueEvent& from, const UniqueEvent& to);

 private:
  UniqueEvent(GpuId gpu, UniqueHandle<EventTraits> event) : gpu_(gpu), event_(std::move(event)) {}
  GpuId gpu_;
  UniqueHandle<EventTraits> event_;
};

}  // namespace hearth
