// See answer_queue.h. Callbacks are called and destroyed without the lock: they may hold writers.
#include "runtime/serve/http/answer_queue.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hearth {

AnswerQueue::AnswerQueue(std::shared_ptr<ServerState> state, std::function<void()> wake)
    : state_(std::move(state)), wake_(std::move(wake)) {}

void AnswerQueue::Wake() {
  if (woken_ || closed_) return;
  woken_ = true;
  wake_();
}

void AnswerQueue::AppendHead(ResponseHeadParts parts) {
  parts.keep_alive = style_.keep_alive;
  parts.unix_seconds = state_->UnixSeconds();
  parts.cors_origin = style_.cors_origin;
  pending_ += ResponseHead(parts);
  state_->counters().responses[static_cast<size_t>(std::min(parts.status, 599) / 100 - 1)]++;
}

// The answer is complete or will never be.
void AnswerQueue::Over() {
  if (phase_ == Phase::kStreaming) state_->counters().streams_open--;
  phase_ = Phase::kOver;
}

WriteResult AnswerQueue::Send(uint64_t serial, HttpReply reply) {
  std::function<void()> dropped;
  const std::lock_guard lock(mutex_);
  if (!Current(serial) || phase_ != Phase::kWaiting) return WriteResult::kGone;
  const bool bare = style_.head_only || !StatusHasBody(reply.status);
  style_.keep_alive = style_.keep_alive && !closing_;
  AppendHead({.status = reply.status,
              .content_type = reply.body.empty() ? std::string_view() : reply.content_type,
              .headers = &reply.headers,
              .framing = bare ? BodyFraming::kNone : BodyFraming::kLength,
              .body_bytes = reply.body.size()});
  if (!bare) pending_ += reply.body;
  finished_ = true;
  Over();
  dropped = std::exchange(on_gone_, nullptr);
  Wake();
  return WriteResult::kQueued;
}

WriteResult AnswerQueue::StartStream(uint64_t serial, StreamHead head) {
  const std::lock_guard lock(mutex_);
  if (!Current(serial) || phase_ != Phase::kWaiting) return WriteResult::kGone;
  if (style_.head_only || !StatusHasBody(head.status)) {
    framing_ = BodyFraming::kNone;
  } else {
    framing_ = style_.http_1_1 ? BodyFraming::kChunked : BodyFraming::kUntilClose;
  }
  // A HEAD answer without a length cannot say where a body would end either: close is plainest.
  style_.keep_alive = style_.keep_alive && !closing_ && framing_ == BodyFraming::kChunked;
  AppendHead({.status = head.status,
              .content_type = head.content_type,
              .headers = &head.headers,
              .framing = framing_ == BodyFraming::kNone ? BodyFraming::kUntilClose : framing_});
  phase_ = Phase::kStreaming;
  state_->counters().streams_open++;
  keep_alive_text_ = std::move(head.keep_alive_text);
  keep_alive_ns_ = keep_alive_text_.empty() ? 0 : head.keep_alive_ns;
  Wake();
  return WriteResult::kQueued;
}

WriteResult AnswerQueue::Write(uint64_t serial, std::string_view piece) {
  const std::lock_guard lock(mutex_);
  if (!Current(serial) || phase_ != Phase::kStreaming) return WriteResult::kGone;
  if (piece.empty() || framing_ == BodyFraming::kNone) return WriteResult::kQueued;
  if (pending_.size() + in_flight_bytes_ + piece.size() > state_->limits().queued_bytes_max) {
    Over();  // on_gone_ stays: the strand calls it
    gone_ = true;
    cut_ = CutReason::kTooSlow;
    pending_.clear();
    woken_ = false;  // a write that the reader never ends must not delay this
    Wake();
    return WriteResult::kGone;
  }
  if (framing_ == BodyFraming::kChunked) {
    AppendChunk(piece, pending_);
  } else {
    pending_ += piece;
  }
  Wake();
  return WriteResult::kQueued;
}

WriteResult AnswerQueue::Finish(uint64_t serial) {
  std::function<void()> dropped;
  const std::lock_guard lock(mutex_);
  if (!Current(serial) || phase_ != Phase::kStreaming) return WriteResult::kGone;
  if (framing_ == BodyFraming::kChunked) pending_ += "0\r\n\r\n";
  finished_ = true;
  Over();
  dropped = std::exchange(on_gone_, nullptr);
  Wake();
  return WriteResult::kQueued;
}

bool AnswerQueue::Drop(uint64_t serial) {
  std::function<void()> dropped;
  const std::lock_guard lock(mutex_);
  if (!Current(serial)) return false;
  if (phase_ == Phase::kWaiting) return true;
  if (phase_ != Phase::kStreaming) return false;
  cut_ = CutReason::kDropped;
  Over();
  dropped = std::exchange(on_gone_, nullptr);
  woken_ = false;
  Wake();
  return false;
}

bool AnswerQueue::gone(uint64_t serial) const {
  const std::lock_guard lock(mutex_);
  return serial == serial_ && gone_;
}

void AnswerQueue::OnGone(uint64_t serial, std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (serial != serial_) return;
    if (phase_ == Phase::kWaiting || phase_ == Phase::kStreaming) {
      on_gone_.swap(callback);  // the one before dies with `callback`, after the lock
      return;
    }
    if (!gone_) return;
  }
  if (callback) callback();
}

uint64_t AnswerQueue::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return pending_.size() + in_flight_bytes_;
}

uint64_t AnswerQueue::Begin(AnswerStyle style) {
  const std::lock_guard lock(mutex_);
  HEARTH_CHECK(phase_ == Phase::kIdle && !gone_);
  phase_ = Phase::kWaiting;
  style_ = std::move(style);
  finished_ = false;
  keep_alive_ns_ = 0;
  keep_alive_text_.clear();
  woken_ = true;  // whoever begins looks afterwards
  return ++serial_;
}

void AnswerQueue::SendContinue() {
  const std::lock_guard lock(mutex_);
  HEARTH_CHECK(phase_ == Phase::kIdle);
  pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
}

void AnswerQueue::MarkClosing() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
}

AnswerQueue::Look AnswerQueue::Take(std::string& output) {
  HEARTH_DCHECK(output.empty());
  const std::lock_guard lock(mutex_);
  woken_ = false;
  output.swap(pending_);
  in_flight_bytes_ = output.size();
  return {.finished = finished_,
          .keep_alive = style_.keep_alive,
          .keep_alive_ns = phase_ == Phase::kStreaming ? keep_alive_ns_ : 0};
}

void AnswerQueue::Written(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  HEARTH_CHECK(bytes <= in_flight_bytes_);
  in_flight_bytes_ -= bytes;
}

void AnswerQueue::PushKeepAlive() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStreaming || !pending_.empty() || in_flight_bytes_ > 0) return;
  if (framing_ == BodyFraming::kChunked) {
    AppendChunk(keep_alive_text_, pending_);
  } else if (framing_ == BodyFraming::kUntilClose) {
    pending_ += keep_alive_text_;
  }
}

void AnswerQueue::End() {
  const std::lock_guard lock(mutex_);
  HEARTH_CHECK(finished_ && pending_.empty() && in_flight_bytes_ == 0);
  phase_ = Phase::kIdle;
  finished_ = false;
}

bool AnswerQueue::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

AnswerQueue::CutReason AnswerQueue::cut() const {
  const std::lock_guard lock(mutex_);
  return cut_;
}

bool AnswerQueue::open() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::kWaiting || phase_ == Phase::kStreaming;
}

std::function<void()> AnswerQueue::MarkGone() {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kWaiting || phase_ == Phase::kStreaming) {
    Over();
    gone_ = true;
    pending_.clear();
  }
  return gone_ ? std::exchange(on_gone_, nullptr) : nullptr;
}

void AnswerQueue::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  pending_.clear();
  pending_.shrink_to_fit();
}

}  // namespace hearth
