// Signals of a server: one thread waits for them, no handler runs.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"

#include "runtime/base/unique_handle.h"

namespace hearth::cli {

// While it lives SIGTERM, SIGINT and SIGHUP are told to the callbacks, on its own thread. To be
// made before other threads are: these inherit that the signals do not reach them.
class SignalThread {
 public:
  struct Callbacks {
    std::function<void(int signal)> end;  // SIGTERM or SIGINT, once: the next one ends the process
    std::function<void()> reload;         // SIGHUP
  };
  static absl::StatusOr<std::unique_ptr<SignalThread>> Create();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  // Once.
  void Start(Callbacks callbacks);
  // No more callbacks; waits for one at work. Not to be called from a callback.
  void Stop();

 private:
  SignalThread(UniqueFd signals, UniqueFd stop, const sigset_t& watched, const sigset_t& before);
  void Main();

  UniqueFd signals_;
  UniqueFd stop_;
  sigset_t watched_;
  sigset_t before_;
  Callbacks callbacks_;
  std::thread thread_;
};

}  // namespace hearth::cli
