// The sending side of a connection: what the writers of its requests queue, from any thread, and
// what the connection takes from it to the socket, on its strand. One request at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/serve/http/http_handler.h"
#include "runtime/serve/http/response_head.h"
#include "runtime/serve/http/server_state.h"

namespace hearth {

// How the answer to a request must look, whatever it says.
struct AnswerStyle {
  bool http_1_1 = true;
  bool head_only = false;  // HEAD
  bool keep_alive = true;
  std::string cors_origin;
};

class AnswerQueue {
 public:
  // `wake` asks the strand to look. Called with the queue locked, so it must only post; not after
  // Close.
  AnswerQueue(std::shared_ptr<ServerState> state, std::function<void()> wake);

  // --- The writers' side: any thread. A serial that is not the current request's is kGone.
  WriteResult Send(uint64_t serial, HttpReply reply);
  WriteResult StartStream(uint64_t serial, StreamHead head);
  WriteResult Write(uint64_t serial, std::string_view piece);
  WriteResult Finish(uint64_t serial);
  // The writer is no more. True: nothing was answered, the caller must Send.
  bool Drop(uint64_t serial);
  bool gone(uint64_t serial) const;
  void OnGone(uint64_t serial, std::function<void()> callback);
  uint64_t queued_bytes() const;

  // --- The strand's side.
  uint64_t Begin(AnswerStyle style);  // the next request; the one before has ended
  void SendContinue();                // 100, between requests
  void MarkClosing();                 // answers not begun yet say Connection: close

  struct Look {
    bool finished = false;      // the answer is complete: with an empty output, it was sent
    bool keep_alive = false;    // of the answer that is finished
    int64_t keep_alive_ns = 0;  // of the stream under way; 0: none
  };
  // Moves what is queued into `output`, which is empty.
  Look Take(std::string& output);
  void Written(uint64_t bytes);
  void PushKeepAlive();  // where nothing else waits
  void End();            // the finished answer was sent
  bool finished() const;
  enum class CutReason { kNone, kTooSlow, kDropped };
  CutReason cut() const;  // why the connection must end now
  bool open() const;      // a request waits for its answer or is in the middle of it
  // The client is gone. What is to be called now, which may be nothing.
  std::function<void()> MarkGone();
  void Close();  // after MarkGone: nobody wakes anybody any more

 private:
  enum class Phase { kIdle, kWaiting, kStreaming, kOver };

  bool Current(uint64_t serial) const { return serial == serial_ && !closed_; }
  void AppendHead(ResponseHeadParts parts);
  void Wake();
  void Over();

  const std::shared_ptr<ServerState> state_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;  // of everything below
  Phase phase_ = Phase::kIdle;
  uint64_t serial_ = 0;
  AnswerStyle style_;
  BodyFraming framing_ = BodyFraming::kLength;
  std::string pending_;
  uint64_t in_flight_bytes_ = 0;  // taken, not yet written
  std::string keep_alive_text_;
  int64_t keep_alive_ns_ = 0;
  std::function<void()> on_gone_;
  bool finished_ = false;
  bool gone_ = false;
  CutReason cut_ = CutReason::kNone;
  bool closing_ = false;
  bool closed_ = false;
  bool woken_ = false;  // the strand will look
};

}  // namespace hearth
