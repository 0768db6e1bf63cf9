// See sse_writer.h. The format is WHATWG HTML, section 9.2: lines end with LF, CR or CRLF alike.
#include "runtime/serve/http/sse_writer.h"

#include <algorithm>
#include <utility>

namespace hearth {
namespace {

// "<field><line>\n" for each line of the text.
void AppendLines(std::string_view field, std::string_view text, std::string& out) {
  while (true) {
    const size_t end = text.find_first_of("\r\n");
    out.append(field).append(text.substr(0, end)).push_back('\n');
    if (end == std::string_view::npos) return;
    const bool pair = text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n';
    text.remove_prefix(end + (pair ? 2 : 1));
  }
}

}  // namespace

std::string SseEventText(std::string_view name, std::string_view data) {
  std::string out;
  out.reserve(data.size() + name.size() + 24);
  if (!name.empty()) {
    std::string safe(name);
    std::replace(safe.begin(), safe.end(), '\n', ' ');
    std::replace(safe.begin(), safe.end(), '\r', ' ');
    out.append("event: ").append(safe).push_back('\n');
  }
  AppendLines("data: ", data, out);
  out.push_back('\n');
  return out;
}

SseWriter::SseWriter(std::shared_ptr<ResponseWriter> writer, SseOptions options)
    : writer_(std::move(writer)) {
  writer_->StartStream({.content_type = "text/event-stream",
                        .headers = std::move(options.headers),
                        .keep_alive_text = ": keep-alive\n\n",
                        .keep_alive_ns = options.keep_alive_ns});
}

WriteResult SseWriter::Data(std::string_view data) {
  return writer_->Write(SseEventText({}, data));
}

WriteResult SseWriter::Event(std::string_view name, std::string_view data) {
  return writer_->Write(SseEventText(name, data));
}

WriteResult SseWriter::Comment(std::string_view text) {
  std::string out;
  AppendLines(": ", text, out);
  out.push_back('\n');
  return writer_->Write(out);
}

}  // namespace hearth
