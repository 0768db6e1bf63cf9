#include "cache/io/memory_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "cache/io/open_reader.h"
#include "cache/io/read_progress.h"
#include "cache/io/wait_signal.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

class MemoryReader final : public Reader {
 public:
  MemoryReader(std::span<const std::byte> bytes, const MemoryReaderOptions& options)
      : bytes_(bytes),
        align_bytes_(options.align_bytes),
        clock_(options.clock),
        finished_(options.in_flight_max) {
    traits_.kind = "memory";
    traits_.in_flight_max = options.in_flight_max;
  }

  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override {
    const size_t n = std::min(requests.size(), traits_.in_flight_max - finished_.count());
    for (const ReadRequest& request : requests.first(n)) {
      const int64_t start_ns = clock_.NowNs();
      absl::Status status = Copy(request);
      finished_.Push({.tag = request.tag,
                      .status = std::move(status),
                      .latency_ns = clock_.NowNs() - start_ns});
    }
    return n;
  }

  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override {
    HEARTH_CHECK(!out.empty());
    if (finished_.count() == 0) signal_.Wait(timeout_ns);
    return finished_.PopInto(out);
  }

  void Wake() override { signal_.Wake(); }
  uint32_t in_flight() const override { return static_cast<uint32_t>(finished_.count()); }
  const ReaderTraits& traits() const override { return traits_; }

 private:
  absl::Status Copy(const ReadRequest& request) const {
    ReadProgress progress(request, {.file_bytes = bytes_.size(), .align_bytes = align_bytes_});
    ReadProgress::Next next = progress.Begin();
    while (next == ReadProgress::Next::kReadMore) {
      const std::span<std::byte> into = progress.next_into();
      const uint64_t offset_bytes = std::min<uint64_t>(progress.next_offset_bytes(), bytes_.size());
      const uint64_t n = std::min<uint64_t>(into.size(), bytes_.size() - offset_bytes);
      if (n > 0) std::memcpy(into.data(), bytes_.data() + offset_bytes, n);
      next = progress.Advance(static_cast<int64_t>(n));
    }
    return next == ReadProgress::Next::kDone ? absl::OkStatus() : progress.Error("memory");
  }

  std::span<const std::byte> bytes_;
  uint64_t align_bytes_;
  Clock& clock_;
  FinishedReads finished_;
  WaitSignal signal_;
  ReaderTraits traits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenMemoryReader(std::span<const std::byte> bytes,
                                                         const MemoryReaderOptions& options) {
  if (options.in_flight_max < 1 || options.in_flight_max > kReaderInFlightMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("in_flight_max ", options.in_flight_max, ": 1 to ", kReaderInFlightMax));
  }
  if (!std::has_single_bit(options.align_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("align_bytes ", options.align_bytes, ": a power of two"));
  }
  return std::make_unique<MemoryReader>(bytes, options);
}

}  // namespace hearth
