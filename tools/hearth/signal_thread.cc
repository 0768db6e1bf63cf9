#include "tools/hearth/signal_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "runtime/base/status.h"

namespace hearth::cli {

SignalThread::SignalThread(UniqueFd signals, UniqueFd stop, const sigset_t& watched,
                           const sigset_t& before)
    : signals_(std::move(signals)), stop_(std::move(stop)), watched_(watched), before_(before) {}

absl::StatusOr<std::unique_ptr<SignalThread>> SignalThread::Create() {
  sigset_t watched;
  sigset_t before;
  sigemptyset(&watched);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&watched, signal);
  UniqueFd signals(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals.valid()) return ErrnoStatus(errno, "signalfd");
  UniqueFd stop(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoStatus(errno, "eventfd");
  const int error = ::pthread_sigmask(SIG_BLOCK, &watched, &before);
  if (error != 0) return ErrnoStatus(error, "pthread_sigmask");
  return std::unique_ptr<SignalThread>(
      new SignalThread(std::move(signals), std::move(stop), watched, before));
}

SignalThread::~SignalThread() {
  Stop();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalThread::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  thread_ = std::thread([this] { Main(); });
}

void SignalThread::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));  // a counter at 0 takes it
  thread_.join();
}

void SignalThread::Main() {
  bool ending = false;
  std::array<pollfd, 2> fds = {{{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
  while (true) {
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if ((fds[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info;
    if (::read(signals_.get(), &info, sizeof(info)) != sizeof(info)) continue;
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGHUP) {
      callbacks_.reload();
    } else if (!ending) {
      ending = true;
      // Whoever asks twice does not want to wait: this thread lets the next one through.
      sigset_t through = watched_;
      sigdelset(&through, SIGHUP);
      ::pthread_sigmask(SIG_UNBLOCK, &through, nullptr);
      callbacks_.end(signal);
    }
  }
}

}  // namespace hearth::cli
