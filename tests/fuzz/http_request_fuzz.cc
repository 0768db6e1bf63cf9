// Any bytes as what a client sends over one connection, in pieces of any length, to a server whose
// answers come at once, later, as streams or never. The whole path but the sockets: parser, checks,
// routes, writers, timeouts. What was said to the client must be answers, whole but for the last.
//
// Input: two bytes that choose how the client and the handler behave, then what the client sends.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/serve/http/http_routes.h"
#include "runtime/serve/http/sse_writer.h"
#include "tests/runtime/serve/http/fake_stream.h"

namespace {

using hearth::FakeServer;
using hearth::FakeWire;
using hearth::HttpRequest;
using hearth::HttpRoutes;
using hearth::ResponseWriter;

struct Manner {
  size_t read_bytes_max;  // of one read
  uint64_t room_bytes;    // that the client takes before it stalls
  uint32_t answer;        // which way
  hearth::StreamEnd end;
};

Manner MannerOf(uint8_t first, uint8_t second) {
  constexpr size_t kReads[] = {SIZE_MAX, 1, 7, 64};
  return {.read_bytes_max = kReads[first & 3],
          .room_bytes = (first & 4) != 0 ? uint64_t{300} : UINT64_MAX,
          .answer = second % 5u,
          .end = (first & 8) != 0 ? hearth::StreamEnd::kError : hearth::StreamEnd::kEnd};
}

hearth::HttpServerOptions Options() {
  return {.limits = {.requests_per_connection_max = 20,
                     .target_bytes_max = 200,
                     .head_bytes_max = 2000,
                     .header_count_max = 20,
                     .body_bytes_max = 3000,
                     .bodies_bytes_max = 4000,
                     .queued_bytes_max = 4096},
          .origins = {"https://chat.example"}};
}

void CheckRequest(const HttpRequest& request) {
  HEARTH_CHECK(!request.path.empty() && request.path.size() <= 200);
  HEARTH_CHECK(request.path[0] == '/' || request.path == "*");
  for (const char c : request.path) HEARTH_CHECK(c >= 0x20 && c < 0x7f);
  HEARTH_CHECK(request.headers.size() <= 20);
  for (const hearth::HttpHeader& header : request.headers) {
    HEARTH_CHECK(!header.name.empty());
    for (const char c : header.value) HEARTH_CHECK(c != '\r' && c != '\n' && c != '\0');
  }
  HEARTH_CHECK(request.body.size() <= 3000);
}

void Answer(uint32_t way, const HttpRequest& request, ResponseWriter& writer) {
  if (way == 0) {
    writer.Send({.content_type = "text/plain", .body = request.body});
    return;
  }
  writer.StartStream({.keep_alive_text = ":\n\n", .keep_alive_ns = 1'000'000'000});
  for (size_t i = 0; i < request.body.size(); i += 100)
    writer.Write(hearth::SseEventText("piece", request.body.substr(i, 100)));
  if (way != 4) writer.Finish();
}

// Answers that begin where the one before ended, as far as they can be followed.
void CheckOutput(std::string_view output) {
  HEARTH_CHECK(output.empty() || output.substr(0, 9) == "HTTP/1.1 ");
  while (!output.empty()) {
    HEARTH_CHECK(output.substr(0, std::min<size_t>(output.size(), 9)) ==
                 std::string_view("HTTP/1.1 ").substr(0, output.size()));
    const size_t end = output.find("\r\n\r\n");
    if (end == std::string_view::npos) return;
    const std::string_view head = output.substr(0, end + 2);
    output.remove_prefix(end + 4);
    const size_t at = head.find("\r\nContent-Length: ");
    if (at == std::string_view::npos) {
      if (head.substr(0, 12) == "HTTP/1.1 100" || head.substr(0, 12) == "HTTP/1.1 204") continue;
      return;  // a stream
    }
    const size_t length = std::stoul(std::string(head.substr(at + 18, 8)));
    const bool head_only = output.substr(0, 9) == "HTTP/1.1 ";  // or a HEAD's
    if (head_only && length != 0) continue;
    output.remove_prefix(std::min(length, output.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Manner manner = MannerOf(data[0], data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  FakeServer server(Options());
  HttpRoutes routes;
  for (const char* method : {"GET", "POST"}) {
    routes.Add({.method = method,
                .path = "/a/*",
                .body_bytes_max = 2000,
                .handle = [](HttpRequest, std::shared_ptr<ResponseWriter>) {}});
  }
  server.handler.screen = [&](const HttpRequest& head) { return routes.Screen(head); };
  if (manner.answer == 0 || manner.answer == 1) {
    server.handler.answer = [&](const HttpRequest& request, ResponseWriter& writer) {
      CheckRequest(request);
      Answer(manner.answer, request, writer);
    };
  }
  const std::shared_ptr<FakeWire> wire = server.Connect();
  wire->read_bytes_max = manner.read_bytes_max;
  wire->room_bytes = manner.room_bytes;
  wire->Send(text);
  for (int i = 0; i < 40 && !server.handler.kept.empty(); ++i) {
    const hearth::KeepingHandler::Kept kept = std::move(server.handler.kept.back());
    server.handler.kept.pop_back();
    CheckRequest(kept.request);
    wire->Advance(2'000'000'000);
    if (manner.answer != 3) Answer(manner.answer, kept.request, *kept.writer);
    wire->Run();
  }
  CheckOutput(wire->output);
  wire->End(manner.end);
  wire->room_bytes = UINT64_MAX;
  for (int i = 0; i < 8; ++i) wire->Advance(60'000'000'000);
  server.handler.kept.clear();
  wire->Run();
  HEARTH_CHECK(wire->closed);
  const hearth::HttpServerStats stats = server.state->Stats();
  HEARTH_CHECK(stats.connections_open == 0 && stats.requests_running == 0);
  HEARTH_CHECK(stats.body_bytes == 0 && stats.streams_open == 0);
  return 0;
}
