// A client's side of a request, without a network: keeps what it is sent and goes away when told.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/serve/http/http_handler.h"

namespace hearth {

class RecordingClient final : public ResponseWriter {
 public:
  WriteResult Send(HttpReply reply) override {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_) return WriteResult::kGone;
    finished_ = true;
    reply_ = std::move(reply);
    return WriteResult::kQueued;
  }
  WriteResult StartStream(StreamHead head) override {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_) return WriteResult::kGone;
    head_ = std::move(head);
    return WriteResult::kQueued;
  }
  WriteResult Write(std::string_view piece) override {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_ || !head_) return WriteResult::kGone;
    stream_ += piece;
    return WriteResult::kQueued;
  }
  WriteResult Finish() override {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_ || !head_) return WriteResult::kGone;
    finished_ = true;
    return WriteResult::kQueued;
  }
  uint64_t queued_bytes() const override { return queued_bytes_; }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void OnGone(std::function<void()> callback) override {
    bool now = false;
    {
      const std::lock_guard lock(mutex_);
      now = gone_ && !finished_;
      if (!now) on_gone_ = std::move(callback);
    }
    if (now) callback();
  }

  void GoAway() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      callback = std::exchange(on_gone_, nullptr);
    }
    if (callback) callback();
  }
  void set_queued_bytes(uint64_t bytes) { queued_bytes_ = bytes; }

  std::optional<HttpReply> reply() const {
    const std::lock_guard lock(mutex_);
    return reply_;
  }
  std::optional<StreamHead> head() const {
    const std::lock_guard lock(mutex_);
    return head_;
  }
  std::string stream() const {
    const std::lock_guard lock(mutex_);
    return stream_;
  }
  bool finished() const {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<HttpReply> reply_;
  std::optional<StreamHead> head_;
  std::string stream_;
  std::function<void()> on_gone_;
  uint64_t queued_bytes_ = 0;
  bool finished_ = false;
  bool gone_ = false;
};

}  // namespace hearth
