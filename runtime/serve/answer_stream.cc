#include "runtime/serve/answer_stream.h"

#include <utility>

namespace hearth {
namespace {

constexpr int64_t kKeepAliveNs = 15'000'000'000;  // proxies and clients give up after 30 to 60 s
constexpr std::string_view kRetryAfterSec = "1";  // a window takes milliseconds, an answer seconds

}  // namespace

HttpReply ErrorReplyOf(Dialect dialect, const absl::Status& status) {
  ErrorReply error = MakeErrorReply(dialect, status);
  HttpReply reply{.status = error.http_status, .body = std::move(error.body)};
  if (error.may_retry_later) {
    reply.headers.push_back({"Retry-After", std::string(kRetryAfterSec)});
  }
  return reply;
}

AnswerStream::AnswerStream(Dialect dialect, std::unique_ptr<AnswerWriter> answer,
                           std::shared_ptr<ResponseWriter> client,
                           std::function<void(const AnswerOutcome&)> told)
    : dialect_(dialect),
      answer_(std::move(answer)),
      client_(std::move(client)),
      told_(std::move(told)) {}

void AnswerStream::Begin() {
  const std::lock_guard lock(mutex_);
  BeginLocked();
}

void AnswerStream::BeginLocked() {
  if (begun_) return;
  begun_ = true;
  if (answer_->streams()) {
    client_->StartStream({.keep_alive_text = answer_->KeepAlive(), .keep_alive_ns = kKeepAliveNs});
  }
  WriteLocked(answer_->Begin());
}

void AnswerStream::WriteLocked(const std::string& text) {
  if (answer_->streams() && !text.empty()) client_->Write(text);
}

void AnswerStream::OnDelta(CompletionDelta delta) {
  const std::lock_guard lock(mutex_);
  BeginLocked();
  WriteLocked(answer_->Delta(delta));
}

void AnswerStream::OnEnd(const CompletionEnd& end) {
  {
    const std::lock_guard lock(mutex_);
    BeginLocked();
    std::string text = answer_->End(end);
    if (answer_->streams()) {
      WriteLocked(text);
      client_->Finish();
    } else {
      client_->Send({.body = std::move(text)});
    }
  }
  if (told_) told_({.end = end});
}

void AnswerStream::OnError(const absl::Status& status) {
  int http_status = 200;
  {
    const std::lock_guard lock(mutex_);
    if (begun_ && answer_->streams()) {
      WriteLocked(answer_->Error(status));
      client_->Finish();
    } else {
      HttpReply reply = ErrorReplyOf(dialect_, status);
      http_status = reply.status;
      client_->Send(std::move(reply));
    }
    begun_ = true;
  }
  if (told_) told_({.http_status = http_status, .status = status});
}

}  // namespace hearth
