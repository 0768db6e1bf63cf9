// SIGINT and SIGTERM as a question, for work that must tidy up before it ends: no handler runs.
#pragma once

#include <signal.h>

#include "absl/status/statusor.h"

#include "runtime/base/unique_handle.h"

namespace hearth::cli {

// While it lives, the two signals do not end the process; Pending() says whether one has come. To
// be made before other threads are, which inherit that. On destruction signals act as before, and
// one that has come and was not asked for acts then.
class InterruptWatch {
 public:
  static absl::StatusOr<InterruptWatch> Create();
  InterruptWatch(InterruptWatch&& other) noexcept;
  InterruptWatch& operator=(InterruptWatch&&) = delete;
  ~InterruptWatch();

  // Once true it stays true. For one thread.
  bool Pending();

 private:
  InterruptWatch(UniqueFd fd, const sigset_t& before);
  UniqueFd fd_;
  sigset_t before_;
  bool pending_ = false;
};

}  // namespace hearth::cli
