// One connection's bytes and its timer, as a connection sees them: real sockets, plain or TLS, in
// net_stream.cc; made-up ones in tests and in the fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace hearth {

enum class StreamEnd {
  kNone,
  kEnd,    // the other side sends no more
  kError,  // nothing goes either way
};

// Who is told what became of the calls below. One call at a time, on the stream's strand, never
// from within a call to the stream.
class StreamUser {
 public:
  virtual ~StreamUser() = default;
  virtual void OnReady(bool ok) = 0;
  virtual void OnRead(size_t bytes, StreamEnd end) = 0;
  virtual void OnWritten(size_t bytes, bool ok) = 0;
  virtual void OnTimer() = 0;
};
using StreamUserRef = std::shared_ptr<StreamUser>;  // kept until the call it came with has ended

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Runs `task` on the strand, later. From any thread; everything else on the strand only.
  virtual void Post(std::function<void()> task) = 0;

  virtual void Start(StreamUserRef user) = 0;  // a handshake, where there is one; then OnReady
  // At most one read and one write at a time. The memory must stay until OnRead or OnWritten.
  virtual void ReadSome(StreamUserRef user, std::span<char> into) = 0;
  virtual void WriteSome(StreamUserRef user, std::string_view bytes) = 0;
  virtual void SetTimer(StreamUserRef user, int64_t after_ns) = 0;  // instead of the one before
  virtual void ShutdownSend(StreamUserRef user) = 0;  // after the last write has ended; no answer
  virtual void Close() = 0;  // calls under way end with an error, or nobody is told
};

}  // namespace hearth
