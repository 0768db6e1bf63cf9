// What stands between the transport and whoever answers: a handler gets each request once and a
// writer for its answer, which it may keep and use later from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "runtime/serve/http/http_message.h"

namespace hearth {

enum class WriteResult {
  kQueued,
  kGone,  // the client went away, was too slow, or the answer is finished: write no more
};

// The answer to one request: either Send once, or StartStream, any number of Write, Finish.
// Any number of threads may call it, none ever blocks on the network. Calls out of order do nothing
// and return kGone. A writer dropped without an answer sends a 500; one dropped in mid-stream cuts
// the connection, so that the client sees that the answer is not whole. A writer may outlive its
// server: everything is kGone then.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual WriteResult Send(HttpReply reply) = 0;

  virtual WriteResult StartStream(StreamHead head) = 0;
  // Queues one piece. Where more than HttpLimits::queued_bytes_max would wait for a slow reader,
  // the connection is cut and this returns kGone. The server cuts a reader that takes nothing for
  // HttpLimits::write_timeout_ns by itself.
  virtual WriteResult Write(std::string_view piece) = 0;
  virtual WriteResult Finish() = 0;

  // Bytes of this connection that the client has not taken yet. A producer that can skip (a
  // dashboard's feed) skips while this is high.
  virtual uint64_t queued_bytes() const = 0;

  // True from the moment the server knows that nobody reads the answer: the client closed its
  // sending side or the connection, was too slow, or the server's grace ended. False once finished.
  virtual bool gone() const = 0;
  // Called once, when gone() becomes true, on an I/O thread: also while nothing is written and
  // while the request waits in a queue. Where gone() is true already it is called at once, on this
  // thread. Never called once the answer is finished. Replaces what was set before. Must not block;
  // may call this writer. It is dropped when the answer ends, so it may hold this writer.
  virtual void OnGone(std::function<void()> callback) = 0;
};

// What a handler says to a request whose body has not been read yet.
struct HeadDecision {
  std::optional<HttpReply> refusal;      // sent instead; Handle is not called
  uint64_t body_bytes_max = UINT64_MAX;  // besides HttpLimits::body_bytes_max
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called on an I/O thread once the head is read and allowed, before the body is read (and before
  // a client that expects 100-continue is told to go on). Must not block.
  virtual HeadDecision Screen(const HttpRequest& head) {
    (void)head;
    return {};
  }
  // Called on an I/O thread, one request at a time per connection, several at once in all. Must not
  // block: what takes long keeps the writer and answers from elsewhere.
  virtual void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) = 0;
};

}  // namespace hearth
