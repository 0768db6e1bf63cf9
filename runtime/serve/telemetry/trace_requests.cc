#include "runtime/serve/telemetry/trace_requests.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status CheckOrder(const TraceOrder& order) {
  if (order.windows == 0 || order.windows > kTraceWindowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("windows: from 1 to ", kTraceWindowsMax, ", found ", order.windows));
  }
  if (order.wait_ns <= 0 || order.wait_ns > kTraceWaitMaxNs) {
    return absl::InvalidArgumentError(absl::StrCat("wait: more than 0 and at most ",
                                                   kTraceWaitMaxNs / 1'000'000'000,
                                                   " seconds, found ", order.wait_ns, " ns"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> TraceRequests::Take(const TraceOrder& order) {
  HEARTH_RETURN_IF_ERROR(CheckOrder(order));
  auto trace = std::make_unique<WindowTrace>(kTraceSpansMax);
  uint32_t taken = 0;
  {  // the text is made without the lock
    std::unique_lock lock(mutex_);
    if (stopping_) return absl::UnavailableError("trace: the server is stopping");
    if (state_ != State::kNone) {
      return absl::ResourceExhaustedError("trace: another one is being taken; ask again later");
    }
    state_ = State::kAsked;
    trace_ = std::move(trace);
    failed_ = absl::OkStatus();
    windows_left_ = order.windows;
    windows_taken_ = 0;
    give_up_ = false;
    wanted_.store(true, std::memory_order_release);
    const auto is_over = [this] { return state_ == State::kDone || stopping_; };
    const std::chrono::nanoseconds wait(order.wait_ns);
    done_.wait_for(lock, wait, is_over);
    give_up_ = true;
    // What is under way ends with the pass at hand; that is waited for as long once more.
    if (state_ == State::kTaking) {
      done_.wait_for(lock, wait, [this] { return state_ == State::kDone; });
    }
    if (state_ == State::kTaking) {  // the pass does not end: its own thread tidies up
      abandoned_ = true;
      return stopping_ ? absl::UnavailableError("trace: the server is stopping")
                       : absl::DeadlineExceededError("trace: a pass did not end in time");
    }
    wanted_.store(false, std::memory_order_release);
    state_ = State::kNone;
    trace = std::move(trace_);
    taken = windows_taken_;
    HEARTH_RETURN_IF_ERROR(failed_);
    if (taken == 0 && stopping_) return absl::UnavailableError("trace: the server is stopping");
  }
  if (taken == 0) {
    return absl::DeadlineExceededError(
        "trace: no window was run in time; ask while a request is being answered");
  }
  return trace->ToJson(absl::StrCat("hearth serve, ", taken, taken == 1 ? " window" : " windows"));
}

void TraceRequests::Begin(ModelRunner& runner) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kAsked) return;
  state_ = State::kTaking;
  taking_ = true;
  failed_ = runner.set_trace(trace_.get());
  begin_ns_ = end_ns_ = runner.clock().NowNs();
}

void TraceRequests::EndRound(ModelRunner& runner) {
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    end_ns_ = runner.clock().NowNs();
    ++windows_taken_;
    is_last = --windows_left_ == 0 || give_up_ || stopping_ || !failed_.ok();
  }
  if (is_last) Finish(runner);
}

void TraceRequests::Finish(ModelRunner& runner) {
  const absl::Status ended = runner.set_trace(nullptr);
  const std::lock_guard lock(mutex_);
  taking_ = false;
  wanted_.store(false, std::memory_order_release);
  failed_.Update(ended);
  trace_->Keep(begin_ns_, end_ns_);
  state_ = State::kDone;
  if (std::exchange(abandoned_, false)) {
    trace_.reset();
    state_ = State::kNone;
  }
  done_.notify_all();
}

void TraceRequests::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  done_.notify_all();
}

}  // namespace hearth
