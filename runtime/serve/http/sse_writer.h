// Server-sent events over a ResponseWriter: events are whole or absent, text cannot break out of
// its field, and a silent stream is kept awake by comments on the server's clock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/http/http_handler.h"

namespace hearth {

struct SseOptions {
  std::vector<HttpHeader> headers;
  int64_t keep_alive_ns =
      15'000'000'000;  // below the 30 to 60 s after which proxies give up; 0: off
};

// Thread safety: as ResponseWriter's.
class SseWriter {
 public:
  // Sends the head of the answer.
  SseWriter(std::shared_ptr<ResponseWriter> writer, SseOptions options);

  // "data: <data>\n\n"; every line of `data` becomes a line of the field.
  WriteResult Data(std::string_view data);
  // "event: <name>\n" and the data. `name` must not hold line ends: those become spaces.
  WriteResult Event(std::string_view name, std::string_view data);
  WriteResult Comment(std::string_view text);
  WriteResult Finish() { return writer_->Finish(); }

  ResponseWriter& writer() { return *writer_; }

 private:
  std::shared_ptr<ResponseWriter> writer_;
};

// The text of one event; `name` empty: without an event field.
std::string SseEventText(std::string_view name, std::string_view data);

}  // namespace hearth
