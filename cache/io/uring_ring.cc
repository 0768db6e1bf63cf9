#include "cache/io/uring_ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "cache/io/process_limits.h"
#include "runtime/base/check.h"
#include "runtime/base/unique_handle.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// The most that the kernel registers as one buffer.
constexpr uint64_t kPieceBytes = 1_GiB;
constexpr size_t kSysctlBytesMax = 64;
// IORING_FEAT_EXT_ARG (waits with a timeout) came with Linux 5.11.
constexpr const char* kKernelNeeded = "Linux 5.11 or later is needed";

struct __kernel_timespec ToTimespec(int64_t ns) {
  struct __kernel_timespec time = {};
  time.tv_sec = ns / 1'000'000'000;
  time.tv_nsec = ns % 1'000'000'000;
  return time;
}

// COOP_TASKRUN (Linux 5.19): completions do not interrupt the thread that submitted, they are
// handled when it next enters the kernel. SINGLE_ISSUER with DEFER_TASKRUN is left out on purpose:
// it was no quicker with reads of megabytes (BENCHMARKS.md), and ties the ring to one thread, so
// that neither another thread nor a ring refused in mid-run could wait for the reads under way.
constexpr unsigned kSetupFlags[] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, 0};

}  // namespace

struct UringRing::Ring {
  struct io_uring uring = {};
  bool is_set_up = false;
  bool has_buffers = false;
  ~Ring() {
    if (!is_set_up) return;
    // Closing the ring alone gives locked memory back some time later: the next reader of this
    // process would meet the limit.
    if (has_buffers) ::io_uring_unregister_buffers(&uring);
    ::io_uring_queue_exit(&uring);
  }
};

absl::Status UringRefusal(int error_number, const std::string& disabled_sysctl) {
  const std::string value(absl::StripAsciiWhitespace(disabled_sysctl));
  const bool is_disabled = value == "1" || value == "2";
  switch (error_number) {
    case EPERM:
    case EACCES:
      if (is_disabled) {
        return absl::FailedPreconditionError(
            absl::StrCat("io_uring is not allowed: kernel.io_uring_disabled is ", value,
                         ", 0 is needed; set it with sysctl -w kernel.io_uring_disabled=0"));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "io_uring is not allowed: ", std::strerror(error_number),
          "; a seccomp filter or security module forbids it: allow io_uring_setup, "
          "io_uring_enter and io_uring_register (containers: --security-opt seccomp=PROFILE)"));
    case ENOSYS:
      return absl::FailedPreconditionError(
          absl::StrCat("io_uring is not there: ", std::strerror(ENOSYS), "; ", kKernelNeeded,
                       ", built with io_uring and not hidden by a seccomp filter"));
    case EMFILE:
    case ENFILE:
      return DescriptorLimitError("io_uring");
    case ENOMEM: {
      const LimitValues limit = LockedMemoryLimit();
      return absl::ResourceExhaustedError(
          absl::StrCat("io_uring: no memory for the ring: RLIMIT_MEMLOCK is ",
                       FormatLimitBytes(limit.soft), " (hard limit ", FormatLimitBytes(limit.hard),
                       "); raise it with ulimit -l or LimitMEMLOCK="));
    }
    default:
      return absl::FailedPreconditionError(
          absl::StrCat("io_uring: ", std::strerror(error_number), "; ", kKernelNeeded));
  }
}

absl::Status UringRefusal(int error_number) {
  // The file's length reads as 0: its text is read as far as it goes.
  std::string text(kSysctlBytesMax, '\0');
  const UniqueFd fd(::open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd.valid() ? ::read(fd.get(), text.data(), text.size()) : 0;
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return UringRefusal(error_number, text);
}

UringRing::UringRing(std::unique_ptr<Ring> ring, const UringOptions& options)
    : ring_(std::move(ring)), buffers_(options.buffers), align_bytes_(options.align_bytes) {}

UringRing::~UringRing() = default;

absl::StatusOr<std::unique_ptr<UringRing>> UringRing::Create(const UringOptions& options) {
  auto ring = std::make_unique<Ring>();
  int result = 0;
  bool is_raised = false;
  for (size_t i = 0; i < std::size(kSetupFlags);) {
    struct io_uring_params params = {};
    params.flags = kSetupFlags[i];
    result = ::io_uring_queue_init_params(options.entry_count, &ring->uring, &params);
    if (result == -EINVAL) {
      ++i;  // an older kernel
      continue;
    }
    const bool is_limit = result == -ENOMEM || result == -EMFILE;
    if (!is_limit || is_raised) break;
    is_raised = true;
    if (!(result == -ENOMEM ? RaiseLockedMemoryLimit() : RaiseDescriptorLimit())) break;
  }
  if (result < 0) return UringRefusal(-result);
  ring->is_set_up = true;
  if ((ring->uring.features & IORING_FEAT_EXT_ARG) == 0) return UringRefusal(EINVAL);
  result = ::io_uring_register_files(&ring->uring, &options.fd, 1);
  if (result < 0) return UringRefusal(-result);
  std::unique_ptr<UringRing> made(new UringRing(std::move(ring), options));
  if (!options.buffers.empty()) made->RegisterBuffers();
  return made;
}

void UringRing::RegisterBuffers() {
  std::vector<struct iovec> pieces;
  for (uint64_t begin = 0; begin < buffers_.size(); begin += kPieceBytes) {
    pieces.push_back({.iov_base = buffers_.data() + begin,
                      .iov_len = std::min<uint64_t>(kPieceBytes, buffers_.size() - begin)});
  }
  const auto count = static_cast<unsigned>(pieces.size());
  int result = ::io_uring_register_buffers(&ring_->uring, pieces.data(), count);
  if (result == -ENOMEM && RaiseLockedMemoryLimit()) {
    result = ::io_uring_register_buffers(&ring_->uring, pieces.data(), count);
  }
  registered_ = result == 0;
  ring_->has_buffers = registered_;
  if (registered_) return;
  const std::string what = "reads land in memory that is not registered with io_uring: ";
  if (result == -ENOMEM) {
    const LimitValues limit = LockedMemoryLimit();
    note_ =
        absl::StrCat(what, FormatBytes(buffers_.size()), " must be locked, RLIMIT_MEMLOCK is ",
                     FormatLimitBytes(limit.soft), " (hard limit ", FormatLimitBytes(limit.hard),
                     ") for all of this user's processes together; raise it with ulimit -l or "
                     "LimitMEMLOCK=");
  } else {
    note_ = absl::StrCat(what, std::strerror(-result), " for ", FormatBytes(buffers_.size()),
                         "; anonymous memory or a memfd can be registered");
  }
}

void UringRing::PushRead(uint64_t tag, uint64_t offset_bytes, std::span<std::byte> into) {
  struct io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_->uring);
  HEARTH_CHECK(entry != nullptr);
  ++pushed_count_;
  const std::less_equal<> le;  // pointers of unlike objects
  const bool is_inside = registered_ && le(buffers_.data(), into.data()) &&
                         le(into.data() + into.size(), buffers_.data() + buffers_.size());
  const uint64_t begin = is_inside ? static_cast<uint64_t>(into.data() - buffers_.data()) : 0;
  const uint64_t piece = begin / kPieceBytes;
  uint64_t read_bytes = std::min<uint64_t>(into.size(), kPieceBytes);
  const uint64_t fixed_bytes = std::min(read_bytes, (piece + 1) * kPieceBytes - begin);
  if (is_inside && (fixed_bytes == read_bytes || fixed_bytes % align_bytes_ == 0)) {
    ::io_uring_prep_read_fixed(entry, 0, into.data(), static_cast<unsigned>(fixed_bytes),
                               offset_bytes, static_cast<int>(piece));
  } else {
    ::io_uring_prep_read(entry, 0, into.data(), static_cast<unsigned>(read_bytes), offset_bytes);
  }
  entry->flags |= IOSQE_FIXED_FILE;
  entry->user_data = tag;
}

void UringRing::PushPoll(uint64_t tag, int fd) {
  struct io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_->uring);
  HEARTH_CHECK(entry != nullptr);
  ++pushed_count_;
  ::io_uring_prep_poll_add(entry, fd, POLLIN);
  entry->user_data = tag;
}

uint64_t UringRing::taken_count() const {
  return pushed_count_ - ::io_uring_sq_ready(&ring_->uring);
}

UringRing::Outcome UringRing::ToOutcome(int result) {
  if (result >= 0) return Outcome::kOk;
  error_number_ = -result;
  switch (error_number_) {
    case ETIME:
      return Outcome::kTimeout;
    case EINTR:
    case EAGAIN:  // no memory for an entry just now
    case EBUSY:   // completions wait to be reaped
      return Outcome::kInterrupted;
    case EPERM:
    case EACCES:
    case ENOSYS:
      return Outcome::kRefused;
    default:
      return Outcome::kFailed;
  }
}

UringRing::Outcome UringRing::Submit() {
  if (::io_uring_sq_ready(&ring_->uring) == 0) return Outcome::kOk;
  return ToOutcome(::io_uring_submit(&ring_->uring));
}

UringRing::Outcome UringRing::Wait(int64_t timeout_ns) {
  struct __kernel_timespec timeout = ToTimespec(timeout_ns);
  struct io_uring_getevents_arg argument = {};
  argument.ts = reinterpret_cast<uint64_t>(&timeout);
  return ToOutcome(::io_uring_enter2(ring_->uring.ring_fd, 0, timeout_ns > 0 ? 1 : 0,
                                     IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                                     reinterpret_cast<sigset_t*>(&argument), sizeof(argument)));
}

UringRing::Outcome UringRing::WaitByPoll(int64_t timeout_ns) {
  struct pollfd ready = {.fd = ring_->uring.ring_fd, .events = POLLIN, .revents = 0};
  const int64_t timeout_ms = std::min<int64_t>((timeout_ns + 999'999) / 1'000'000, INT32_MAX);
  const int n = ::poll(&ready, 1, static_cast<int>(timeout_ms));
  if (n < 0) return ToOutcome(-errno);
  return n == 0 ? Outcome::kTimeout : Outcome::kOk;
}

void UringRing::Reap(const OnCompletion& on_completion) {
  struct io_uring_cqe* entry = nullptr;
  unsigned head = 0;
  unsigned count = 0;
  io_uring_for_each_cqe(&ring_->uring, head, entry) {
    on_completion(entry->user_data, entry->res);
    ++count;
  }
  ::io_uring_cq_advance(&ring_->uring, count);
}

}  // namespace hearth
