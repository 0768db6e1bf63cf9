// See http_connection.h. Everything here runs on the stream's strand, but Start, Drain and Cut,
// which post to it, and the writers, which meet it in AnswerQueue.
#include "runtime/serve/http/http_connection.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/serve/http/answer_queue.h"
#include "runtime/serve/http/request_gate.h"
#include "runtime/serve/http/request_parser.h"

namespace hearth {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr size_t kReadBytes = 16'384;
// What a client may send ahead while its request is answered; beyond, the connection ends with
// that answer. Reading goes on in any case: it is how the end of the client is seen.
constexpr size_t kAheadBytesMax = 16'384;
constexpr size_t kOutputBytesKept = 65'536;  // capacity of a buffer that stays with a connection

class Writer final : public ResponseWriter {
 public:
  Writer(std::shared_ptr<AnswerQueue> queue, uint64_t serial, std::shared_ptr<ServerState> state,
         std::string path)
      : queue_(std::move(queue)),
        serial_(serial),
        state_(std::move(state)),
        path_(std::move(path)) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() override {
    if (!queue_->Drop(serial_)) return;
    state_->counters().refusals.fetch_add(1);
    queue_->Send(serial_,
                 ReplyOf(ErrorOf(HttpRefusal::kInternal, path_), state_->options().error_body));
  }

  WriteResult Send(HttpReply reply) override { return queue_->Send(serial_, std::move(reply)); }
  WriteResult StartStream(StreamHead head) override {
    return queue_->StartStream(serial_, std::move(head));
  }
  WriteResult Write(std::string_view piece) override { return queue_->Write(serial_, piece); }
  WriteResult Finish() override { return queue_->Finish(serial_); }
  uint64_t queued_bytes() const override { return queue_->queued_bytes(); }
  bool gone() const override { return queue_->gone(serial_); }
  void OnGone(std::function<void()> callback) override {
    queue_->OnGone(serial_, std::move(callback));
  }

 private:
  const std::shared_ptr<AnswerQueue> queue_;
  const uint64_t serial_;
  const std::shared_ptr<ServerState> state_;
  const std::string path_;
};

class HttpConnection final : public Connection,
                             public StreamUser,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<ServerState> state, std::unique_ptr<ByteStream> stream,
                 PeerName peer, bool refuse)
      : state_(std::move(state)),
        stream_(std::move(stream)),
        peer_(std::move(peer)),
        refuse_(refuse),
        buffer_(kReadBytes) {}

  // After construction: needs the shared pointer to itself.
  void Attach() {
    answers_ = std::make_shared<AnswerQueue>(state_, [weak = weak_from_this()] {
      if (const std::shared_ptr<HttpConnection> self = weak.lock())
        self->stream_->Post([self] { self->OnWake(); });
    });
    state_->Add(shared_from_this());
  }

  void Start() override {
    stream_->Post([self = shared_from_this()] {
      if (self->stage_ != Stage::kStarting) return;
      self->read_deadline_ns_ = self->Now() + self->state_->limits().head_timeout_ns;
      self->stream_->Start(self);
      self->ArmTimer();
    });
  }
  void Drain() override {
    stream_->Post([self = shared_from_this()] { self->BeginDrain(); });
  }
  void Cut() override {
    stream_->Post([self = shared_from_this()] { self->Close(); });
  }

  void OnReady(bool ok) override;
  void OnRead(size_t bytes, StreamEnd end) override;
  void OnWritten(size_t bytes, bool ok) override;
  void OnTimer() override;

 private:
  enum class Stage {
    kStarting,   // handshake
    kHead,       // waiting for a request, or in its head
    kBody,       // in its body
    kAnswering,  // from the handler's call until the answer is written
    kLingering,  // said everything; waits until the client has closed
    kClosed,
  };

  int64_t Now() const { return state_->clock().NowNs(); }
  void Read();
  void BeginDrain();
  void BeginRequest(int64_t timeout_ns);
  void ProcessInput();
  RequestParser::Fed FeedOnce(std::string_view bytes);
  void OnHead();
  void Dispatch();
  void Refuse(HttpRefusal refusal);
  void Reply(HttpReply reply, bool keep_alive);
  AnswerStyle StyleOf(const RequestHead& head) const;
  void KeepAhead(std::string_view bytes);
  void OnEnd(StreamEnd end);
  void OnWake();
  void Flush();
  void EndAnswer(bool keep_alive);
  void OnReadTimeout();
  void ArmTimer();
  void ReleaseBody();
  void Close();

  const std::shared_ptr<ServerState> state_;
  const std::unique_ptr<ByteStream> stream_;
  const PeerName peer_;
  const bool refuse_;  // one too many: its first request is answered 503
  std::shared_ptr<AnswerQueue> answers_;

  Stage stage_ = Stage::kStarting;
  std::vector<char> buffer_;  // of the read under way
  std::string input_;         // read, not yet used
  bool reading_ = false;
  bool saw_end_ = false;
  bool discard_input_ = false;  // the connection ends after this answer
  std::optional<RequestParser> parser_;
  std::string cors_origin_;
  uint64_t body_bytes_ = 0;  // reserved for the request under way
  uint32_t request_count_ = 0;
  bool head_begun_ = false;  // the first byte of its head has come
  bool running_ = false;     // counted in requests_running

  std::string output_;  // being written
  size_t output_offset_ = 0;
  bool writing_ = false;

  int64_t read_deadline_ns_ = kNever;
  int64_t write_deadline_ns_ = kNever;
  int64_t keep_alive_at_ns_ = kNever;
  int64_t timer_at_ns_ = kNever;
};

void HttpConnection::OnReady(bool ok) {
  if (stage_ == Stage::kClosed) return;
  if (!ok) return Close();
  BeginRequest(state_->limits().head_timeout_ns);
  Read();
  ArmTimer();
}

void HttpConnection::Read() {
  if (reading_ || saw_end_ || stage_ == Stage::kClosed) return;
  reading_ = true;
  stream_->ReadSome(shared_from_this(), buffer_);
}

void HttpConnection::BeginRequest(int64_t timeout_ns) {
  stage_ = Stage::kHead;
  head_begun_ = false;
  cors_origin_.clear();
  parser_.emplace(state_->limits());
  read_deadline_ns_ = Now() + timeout_ns;
}

void HttpConnection::OnRead(size_t bytes, StreamEnd end) {
  reading_ = false;
  if (stage_ == Stage::kClosed) return;
  state_->counters().bytes_read.fetch_add(bytes);
  const std::string_view text(buffer_.data(), bytes);
  if (stage_ == Stage::kHead || stage_ == Stage::kBody) {
    input_.append(text);
    ProcessInput();
  } else if (stage_ == Stage::kAnswering) {
    KeepAhead(text);
  }
  if (end != StreamEnd::kNone) {
    OnEnd(end);
  } else {
    Read();
  }
  ArmTimer();
}

void HttpConnection::KeepAhead(std::string_view bytes) {
  if (discard_input_) return;
  if (input_.size() + bytes.size() <= kAheadBytesMax) {
    input_.append(bytes);
    return;
  }
  discard_input_ = true;
  input_.clear();
  answers_->MarkClosing();
}

RequestParser::Fed HttpConnection::FeedOnce(std::string_view bytes) {
  const RequestParser::Fed fed = parser_->Feed(bytes);
  const uint64_t grown = parser_->body_bytes() - body_bytes_;
  if (!state_->ReserveBody(grown)) {
    Refuse(HttpRefusal::kBodiesTooLarge);
    return {.step = RequestParser::Step::kMore, .used = bytes.size()};
  }
  body_bytes_ += grown;
  return fed;
}

void HttpConnection::ProcessInput() {
  size_t used = 0;
  bool more = false;
  while (!more && (stage_ == Stage::kHead || stage_ == Stage::kBody)) {
    const RequestParser::Fed fed = FeedOnce(std::string_view(input_).substr(used));
    used += fed.used;
    switch (fed.step) {
      case RequestParser::Step::kMore:
        more = true;
        break;
      case RequestParser::Step::kHead:
        if (used < input_.size()) parser_->head().expects_continue = false;  // it did not wait
        OnHead();
        break;
      case RequestParser::Step::kDone:
        input_.erase(0, used);
        used = 0;
        Dispatch();
        break;
      case RequestParser::Step::kRefused:
        Refuse(parser_->refusal());
        break;
    }
  }
  input_.erase(0, std::min(used, input_.size()));
  if (stage_ == Stage::kHead && parser_->begun() && !head_begun_) {
    head_begun_ = true;
    read_deadline_ns_ = Now() + state_->limits().head_timeout_ns;
  }
}

AnswerStyle HttpConnection::StyleOf(const RequestHead& head) const {
  return {.http_1_1 = head.http_1_1,
          .head_only = head.request.method == "HEAD",
          .keep_alive = head.keep_alive && head.http_1_1 && !state_->draining() &&
                        request_count_ < state_->limits().requests_per_connection_max,
          .cors_origin = cors_origin_};
}

void HttpConnection::OnHead() {
  RequestHead& head = parser_->head();
  if (refuse_) return Refuse(HttpRefusal::kTooManyConnections);
  if (state_->draining()) return Refuse(HttpRefusal::kStopping);
  const std::shared_ptr<const ApiKeys> keys = state_->keys();
  GateDecision gate = CheckGate(head, peer_.kind, state_->options(), keys.get());
  cors_origin_ = std::move(gate.cors_origin);
  if (gate.refusal.has_value()) return Refuse(*gate.refusal);
  if (gate.preflight)
    return Reply({.status = 204, .content_type = {}, .headers = PreflightHeaders()}, true);
  head.request.peer = peer_.name;
  head.request.key_id = std::move(gate.key_id);
  HeadDecision decision = state_->handler().Screen(head.request);
  if (decision.refusal.has_value()) {
    state_->counters().refusals.fetch_add(1);
    return Reply(*std::move(decision.refusal), true);
  }
  parser_->LimitBody(decision.body_bytes_max);
  const uint64_t body_bytes_max =
      std::min(decision.body_bytes_max, state_->limits().body_bytes_max);
  if (head.length_bytes > body_bytes_max) return Refuse(HttpRefusal::kBodyTooLarge);
  stage_ = Stage::kBody;
  read_deadline_ns_ = Now() + state_->limits().body_timeout_ns;
  if (head.has_body && head.expects_continue) {
    answers_->SendContinue();
    Flush();
  }
}

void HttpConnection::Dispatch() {
  if (state_->draining()) return Refuse(HttpRefusal::kStopping);
  ++request_count_;
  AnswerStyle style = StyleOf(parser_->head());
  HttpRequest request = parser_->Take();
  stage_ = Stage::kAnswering;
  read_deadline_ns_ = kNever;
  running_ = true;
  state_->counters().requests.fetch_add(1);
  state_->counters().requests_running.fetch_add(1);
  const uint64_t serial = answers_->Begin(std::move(style));
  auto writer = std::make_shared<Writer>(answers_, serial, state_, request.path);
  state_->handler().Handle(std::move(request), std::move(writer));
  OnWake();
}

void HttpConnection::Refuse(HttpRefusal refusal) {
  state_->counters().refusals.fetch_add(1);
  // What the client goes on sending is of no use when the request could not be read to its end.
  const bool keep_alive = refusal == HttpRefusal::kKeyMissing ||
                          refusal == HttpRefusal::kKeyUnknown ||
                          refusal == HttpRefusal::kOriginRefused;
  const std::string path = parser_->head().request.path;
  Reply(ReplyOf(ErrorOf(refusal, path), state_->options().error_body), keep_alive);
}

// Answers in the handler's place. The request's body, if any, is not read.
void HttpConnection::Reply(HttpReply reply, bool keep_alive) {
  ++request_count_;
  AnswerStyle style = StyleOf(parser_->head());
  style.keep_alive = style.keep_alive && keep_alive && !parser_->head().has_body;
  discard_input_ = !style.keep_alive;
  ReleaseBody();
  stage_ = Stage::kAnswering;
  read_deadline_ns_ = kNever;
  const uint64_t serial = answers_->Begin(std::move(style));
  answers_->Send(serial, std::move(reply));
  OnWake();
}

void HttpConnection::OnEnd(StreamEnd end) {
  saw_end_ = true;
  // A client that closed its sending side while its answer is not complete has gone; a complete
  // answer is still written to it.
  if (stage_ == Stage::kAnswering && end == StreamEnd::kEnd && !answers_->open()) return;
  Close();
}

void HttpConnection::OnWake() {
  Flush();
  ArmTimer();
}

void HttpConnection::Flush() {
  if (stage_ == Stage::kClosed) return;
  if (const AnswerQueue::CutReason cut = answers_->cut(); cut != AnswerQueue::CutReason::kNone) {
    if (cut == AnswerQueue::CutReason::kTooSlow) state_->counters().slow_readers_cut.fetch_add(1);
    return Close();
  }
  if (writing_) return;
  const AnswerQueue::Look look = answers_->Take(output_);
  keep_alive_at_ns_ = look.keep_alive_ns > 0 ? Now() + look.keep_alive_ns : kNever;
  if (!output_.empty()) {
    writing_ = true;
    output_offset_ = 0;
    write_deadline_ns_ = Now() + state_->limits().write_timeout_ns;
    stream_->WriteSome(shared_from_this(), output_);
    return;
  }
  if (look.finished) EndAnswer(look.keep_alive);
}

void HttpConnection::OnWritten(size_t bytes, bool ok) {
  writing_ = false;
  if (stage_ == Stage::kClosed) return;
  if (!ok) return Close();
  state_->counters().bytes_written.fetch_add(bytes);
  answers_->Written(bytes);
  output_offset_ += bytes;
  if (output_offset_ < output_.size()) {
    writing_ = true;
    write_deadline_ns_ = Now() + state_->limits().write_timeout_ns;
    stream_->WriteSome(shared_from_this(), std::string_view(output_).substr(output_offset_));
  } else {
    output_.clear();
    if (output_.capacity() > kOutputBytesKept) output_.shrink_to_fit();
    write_deadline_ns_ = kNever;
    Flush();
  }
  ArmTimer();
}

void HttpConnection::EndAnswer(bool keep_alive) {
  answers_->End();
  ReleaseBody();
  if (running_) state_->counters().requests_running.fetch_sub(1);
  running_ = false;
  if (saw_end_) return Close();
  if (!keep_alive || discard_input_ || state_->draining()) {
    stage_ = Stage::kLingering;
    read_deadline_ns_ = Now() + state_->limits().linger_ns;
    stream_->ShutdownSend(shared_from_this());
    return;
  }
  BeginRequest(state_->limits().idle_timeout_ns);
  ProcessInput();
}

void HttpConnection::BeginDrain() {
  if (stage_ == Stage::kStarting || (stage_ == Stage::kHead && !parser_->begun())) return Close();
  answers_->MarkClosing();
}

void HttpConnection::OnTimer() {
  timer_at_ns_ = kNever;
  if (stage_ == Stage::kClosed) return;
  const int64_t now = Now();
  if (now >= write_deadline_ns_) {
    state_->counters().slow_readers_cut.fetch_add(1);
    return Close();
  }
  if (now >= read_deadline_ns_) {
    OnReadTimeout();
  } else if (now >= keep_alive_at_ns_) {
    keep_alive_at_ns_ = kNever;
    answers_->PushKeepAlive();
    Flush();
  }
  ArmTimer();
}

void HttpConnection::OnReadTimeout() {
  const bool in_request = stage_ == Stage::kBody || (stage_ == Stage::kHead && parser_->begun());
  if (!in_request) return Close();
  state_->counters().timeouts.fetch_add(1);
  Refuse(HttpRefusal::kTimeout);
}

// The timer is left alone where it fires early enough: deadlines that move on with every request
// cost nothing.
void HttpConnection::ArmTimer() {
  if (stage_ == Stage::kClosed) return;
  const int64_t next = std::min({read_deadline_ns_, write_deadline_ns_, keep_alive_at_ns_});
  if (next >= timer_at_ns_) return;
  timer_at_ns_ = next;
  stream_->SetTimer(shared_from_this(), std::max<int64_t>(next - Now(), 0));
}

void HttpConnection::ReleaseBody() {
  state_->ReleaseBody(body_bytes_);
  body_bytes_ = 0;
}

void HttpConnection::Close() {
  if (stage_ == Stage::kClosed) return;
  stage_ = Stage::kClosed;
  if (running_) {
    state_->counters().requests_running.fetch_sub(1);
    if (answers_->open()) state_->counters().clients_gone.fetch_add(1);
  }
  if (const std::function<void()> gone = answers_->MarkGone()) gone();
  answers_->Close();
  stream_->Close();
  ReleaseBody();
  parser_.reset();
  input_ = {};
  state_->Remove(this, peer_);
}

}  // namespace

std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ServerState> state,
                                           std::unique_ptr<ByteStream> stream, PeerName peer,
                                           ServerState::Admission admission) {
  HEARTH_CHECK(admission != ServerState::Admission::kDrop);
  auto connection =
      std::make_shared<HttpConnection>(std::move(state), std::move(stream), std::move(peer),
                                       admission == ServerState::Admission::kRefuse);
  connection->Attach();
  return connection;
}

}  // namespace hearth
