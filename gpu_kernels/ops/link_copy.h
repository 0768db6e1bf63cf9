// Uploads over the link by kernels that read host memory themselves, beside the copy engine; and
// which of the two an expert takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"

namespace hearth {

// Copies `bytes` (a multiple of 16) from `from`, the card's address of pinned host memory, to `to`,
// both 16-byte aligned: 16 bytes a lane, `blocks` blocks of 512 threads, which take a few
// multiprocessors from everybody else. Enqueues on `stream` and returns. Unimplemented in a build
// without CUDA.
absl::Status LaunchLinkCopy(const std::byte* from, std::byte* to, uint64_t bytes, uint32_t blocks,
                            CudaStreamView stream);

enum class UploadWay : uint8_t { kCopyEngine, kKernel };

// Measured on blobs of the size in question, bytes per second; 0: not measured.
struct LinkRates {
  double copy_engine = 0;
  double kernel = 0;
};

// Bytes per second of the copy engine over pieces of `piece_bytes` that follow each other in
// `pinned`, a few at a time. Takes a context and a piece of the card's memory; waits, some
// milliseconds. InvalidArgument for less than two pieces, Unimplemented in a build without CUDA.
absl::StatusOr<double> MeasureUploadRate(GpuId gpu, std::span<const std::byte> pinned,
                                         uint64_t piece_bytes);

// The faster, but the copy engine unless a kernel is faster by a twentieth: it takes no
// multiprocessor.
UploadWay ChooseUploadWay(const LinkRates& rates);

}  // namespace hearth
