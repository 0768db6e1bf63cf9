// Tells a client the answer to its call in the client's dialect, whole or as a stream of
// server-sent events. Routes know only this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "runtime/serve/api/api_call.h"
#include "runtime/serve/completion.h"

namespace hearth {

// One per call, on one thread at a time. What the functions return is to be sent as it is: for a
// stream whole events ("data: ...\n\n"; text/event-stream), otherwise nothing until End or Error,
// whose text is the body (application/json). Valid UTF-8, whatever was cut where.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual bool streams() const = 0;
  virtual std::string Begin() = 0;  // before anything else
  virtual std::string Delta(const CompletionDelta& delta) = 0;
  virtual std::string End(const CompletionEnd& end) = 0;  // the last
  // Instead of End: after something was sent. Before that, send MakeErrorReply with its status.
  virtual std::string Error(const absl::Status& status) = 0;
  // Keeps proxies and clients from giving up where nothing else is sent for long.
  virtual std::string KeepAlive() = 0;
};

struct ReplyIdentity {
  std::string unique;       // letters and digits, different for every reply
  int64_t created_sec = 0;  // Unix time
};

// `facts` outlives the writer. Looks at call's dialect, format and options, not at its prompt.
std::unique_ptr<AnswerWriter> MakeAnswerWriter(const ApiCall& call, const ModelFacts& facts,
                                               const ReplyIdentity& identity);

}  // namespace hearth
