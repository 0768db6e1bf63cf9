#include "tools/hearth/interrupt_watch.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/status.h"

namespace hearth::cli {

InterruptWatch::InterruptWatch(UniqueFd fd, const sigset_t& before)
    : fd_(std::move(fd)), before_(before) {}

InterruptWatch::InterruptWatch(InterruptWatch&& other) noexcept
    : fd_(std::move(other.fd_)), before_(other.before_), pending_(other.pending_) {}

absl::StatusOr<InterruptWatch> InterruptWatch::Create() {
  sigset_t watched;
  sigset_t before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGTERM);
  UniqueFd fd(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  const int error = ::pthread_sigmask(SIG_BLOCK, &watched, &before);
  if (error != 0) return ErrnoStatus(error, "pthread_sigmask");
  return InterruptWatch(std::move(fd), before);
}

InterruptWatch::~InterruptWatch() {
  if (fd_.valid()) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool InterruptWatch::Pending() {
  signalfd_siginfo info;
  if (!pending_) pending_ = ::read(fd_.get(), &info, sizeof(info)) == sizeof(info);
  return pending_;
}

}  // namespace hearth::cli
