// One io_uring with one registered file and, where the limits allow it, registered buffers: the
// system calls and what their refusals mean. liburing stays behind this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

struct UringOptions {
  uint32_t entry_count = 16;  // most entries pushed and not yet taken by the kernel
  int fd = -1;                // the file, registered
  std::span<std::byte> buffers;
  uint64_t align_bytes = 4096;
};

// Not thread-safe, and not tied to one thread either.
class UringRing {
 public:
  // What happened in a call to the kernel.
  enum class Outcome {
    kOk,
    kTimeout,
    kInterrupted,  // by a signal, or the kernel is short of memory: ask again
    kRefused,      // io_uring is not allowed (any more)
    kFailed,       // error_number() says why
  };
  using OnCompletion = std::function<void(uint64_t tag, int32_t result)>;

  // FailedPrecondition: io_uring cannot be used here; the message says why and what to do.
  // ResourceExhausted: a limit, by name.
  static absl::StatusOr<std::unique_ptr<UringRing>> Create(const UringOptions& options);
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  bool registered() const { return registered_; }
  // Why the buffers are not registered; empty when they are or there are none.
  const std::string& note() const { return note_; }
  int error_number() const { return error_number_; }

  // Queues an entry for the kernel. A read may ask for less than `into` when that crosses the end
  // of a registered piece.
  void PushRead(uint64_t tag, uint64_t offset_bytes, std::span<std::byte> into);
  void PushPoll(uint64_t tag, int fd);
  // Entries pushed since creation, and how many of them the kernel has taken, oldest first.
  uint64_t pushed_count() const { return pushed_count_; }
  uint64_t taken_count() const;

  Outcome Submit();  // hands queued entries to the kernel
  Outcome Wait(int64_t timeout_ns);
  // Waits without asking io_uring for anything: for a ring that is refused while reads are under
  // way.
  Outcome WaitByPoll(int64_t timeout_ns);
  // Calls `on_completion` for each one that is there; it may push.
  void Reap(const OnCompletion& on_completion);

 private:
  struct Ring;
  UringRing(std::unique_ptr<Ring> ring, const UringOptions& options);
  void RegisterBuffers();
  Outcome ToOutcome(int result);

  std::unique_ptr<Ring> ring_;
  std::span<std::byte> buffers_;
  uint64_t align_bytes_ = 1;
  uint64_t pushed_count_ = 0;
  bool registered_ = false;
  int error_number_ = 0;
  std::string note_;
};

// Why io_uring_setup or io_uring_enter was refused with `error_number`, and the remedy.
// `disabled_sysctl`: the text of /proc/sys/kernel/io_uring_disabled, empty when there is none.
absl::Status UringRefusal(int error_number, const std::string& disabled_sysctl);
absl::Status UringRefusal(int error_number);  // the same, asking the kernel

}  // namespace hearth
