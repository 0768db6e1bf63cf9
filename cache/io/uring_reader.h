// A Reader over one io_uring: a request is one entry of the ring (more when the kernel answers in
// pieces), and completions are taken as they land.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/io/direct_file.h"
#include "cache/io/finished_reads.h"
#include "cache/io/read_progress.h"
#include "cache/io/reader.h"
#include "cache/io/uring_ring.h"
#include "runtime/base/clock.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

struct UringReaderOptions {
  uint32_t in_flight_max = 16;
  std::span<std::byte> buffers;
  uint64_t align_bytes = 4096;
  uint64_t attempt_bytes_max = 0;  // 0: no limit
  Clock& clock;
};

// Should the kernel refuse io_uring in mid-run, `refusal()` says so: what it has taken still lands
// and is handed out by Wait(), what it has not is given back by TakeUnread(), and nothing more can
// be submitted. When nothing is left to land, Submit() and Wait() return the refusal.
class UringReader final : public Reader {
 public:
  // The options are as OpenReader checked them. Errors as UringRing::Create.
  static absl::StatusOr<std::unique_ptr<UringReader>> Create(std::shared_ptr<DirectFile> file,
                                                             const UringReaderOptions& options);
  ~UringReader() override;

  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override;
  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override;
  void Wake() override;
  uint32_t in_flight() const override;
  const ReaderTraits& traits() const override { return traits_; }

  const absl::Status& refusal() const { return refusal_; }
  // Requests that the kernel will not answer any more, in no order; they are in flight no longer.
  std::vector<ReadRequest> TakeUnread();

 private:
  enum class SlotState { kFree, kPushed, kUnread };
  struct Slot {
    SlotState state = SlotState::kFree;
    ReadProgress progress;
    int64_t submitted_ns = 0;
    uint64_t push_number = 0;  // UringRing::pushed_count() after it was pushed
  };

  UringReader(std::shared_ptr<DirectFile> file, std::unique_ptr<UringRing> ring, UniqueFd wake_fd,
              const UringReaderOptions& options);
  void DescribeDirect();
  void PushSlot(uint32_t slot_index);
  void Follow(uint32_t slot_index, ReadProgress::Next next);
  void OnCompletion(uint64_t tag, int32_t result);
  void PushWakePoll();
  void NoteRefusal(UringRing::Outcome outcome);
  UringRing::Outcome Enter(int64_t timeout_ns);
  uint32_t HeldByKernel() const;

  std::shared_ptr<DirectFile> file_;
  std::unique_ptr<UringRing> ring_;
  UniqueFd wake_fd_;
  uint64_t align_bytes_;
  uint64_t attempt_bytes_max_;
  Clock& clock_;
  ReaderTraits traits_;
  UringRing::OnCompletion on_completion_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  FinishedReads finished_;
  bool woken_ = false;
  absl::Status refusal_;
};

}  // namespace hearth
