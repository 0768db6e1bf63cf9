// Carries a completion to the client who asked for it: the engine's deltas through the dialect's
// writer into the connection, and the client's going away back to the engine.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"

#include "runtime/serve/api/answer_writer.h"
#include "runtime/serve/api/api_error.h"
#include "runtime/serve/completion.h"
#include "runtime/serve/http/http_handler.h"

namespace hearth {

// What a request came to, for the log.
struct AnswerOutcome {
  int http_status = 200;
  absl::Status status;  // OK: `end` holds
  CompletionEnd end;
};

// The reply to a call that is not, or no longer, answered.
HttpReply ErrorReplyOf(Dialect dialect, const absl::Status& status);

class AnswerStream final : public CompletionSink {
 public:
  // `told`, which may be empty, is called once at the end, on the service's thread.
  AnswerStream(Dialect dialect, std::unique_ptr<AnswerWriter> answer,
               std::shared_ptr<ResponseWriter> client,
               std::function<void(const AnswerOutcome&)> told);

  // The service took the request: a stream's head and first events go out, unless an end or a
  // delta was faster.
  void Begin();

  void OnDelta(CompletionDelta delta) override;
  void OnEnd(const CompletionEnd& end) override;
  void OnError(const absl::Status& status) override;

 private:
  void BeginLocked();
  void WriteLocked(const std::string& text);

  const Dialect dialect_;
  std::mutex mutex_;  // guards what follows: Begin() is not of the service's thread
  const std::unique_ptr<AnswerWriter> answer_;
  const std::shared_ptr<ResponseWriter> client_;
  const std::function<void(const AnswerOutcome&)> told_;
  bool begun_ = false;
};

}  // namespace hearth
