#include "runtime/engine/window_tracer.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// A window of 9 rows through 48 layers of 90 experts each, every one in a few pieces.
constexpr uint32_t kSpansMax = 1 << 16;

}  // namespace

WindowTracer::WindowTracer(ModelRunner& runner, std::optional<uint64_t> index)
    : runner_(runner), index_(index), trace_(kSpansMax) {}

WindowTracer::~WindowTracer() {
  if (under_way_) (void)runner_.set_trace(nullptr);
}

absl::Status WindowTracer::Begin() {
  if (!IsWanted()) return absl::OkStatus();
  trace_.Clear();
  kept_.reset();
  under_way_ = true;
  HEARTH_RETURN_IF_ERROR(runner_.set_trace(&trace_));
  begin_ns_ = runner_.clock().NowNs();
  return absl::OkStatus();
}

absl::Status WindowTracer::End() {
  if (under_way_) {
    const int64_t end_ns = runner_.clock().NowNs();
    under_way_ = false;
    HEARTH_RETURN_IF_ERROR(runner_.set_trace(nullptr));
    trace_.Keep(begin_ns_, end_ns);
    trace_.Add({.name = "window", .begin_ns = begin_ns_, .end_ns = end_ns});
    kept_ = window_count_;
  }
  ++window_count_;
  return absl::OkStatus();
}

absl::StatusOr<std::string> WindowTracer::ToJson(std::string_view what) const {
  if (kept_) return trace_.ToJson(absl::StrCat(ToAbsl(what), ", window ", *kept_));
  if (window_count_ == 0) return absl::FailedPreconditionError("no window was run");
  return absl::FailedPreconditionError(absl::StrCat("window ", index_.value_or(0),
                                                    " was asked for, found ", window_count_,
                                                    " windows, numbered from 0"));
}

}  // namespace hearth
