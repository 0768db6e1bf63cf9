#include "runtime/backend/cuda/event_wait.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {

absl::Status AwaitEvent(const UniqueEvent& event, Clock& clock, int64_t wait_ns_max,
                        std::string_view what) {
  const int64_t begin_ns = clock.NowNs();
  for (;;) {
    const absl::StatusOr<bool> passed = event.HasPassed();
    if (!passed.ok()) return Annotate(passed.status(), what);
    if (*passed) return absl::OkStatus();
    if (clock.NowNs() - begin_ns > wait_ns_max) {
      return absl::DeadlineExceededError(absl::StrCat(
          ToAbsl(what), ": the card has not answered for ", wait_ns_max / 1'000'000,
          " ms; another program may hold it, or the driver may have lost it (see nvidia-smi)"));
    }
  }
}

}  // namespace hearth
