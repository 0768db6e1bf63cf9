// The table of paths, events, heads of answers and refusals: what they say, without a connection.
#include "runtime/serve/http/http_routes.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serve/http/http_error.h"
#include "runtime/serve/http/http_message.h"
#include "runtime/serve/http/http_options.h"
#include "runtime/serve/http/response_head.h"
#include "runtime/serve/http/server_state.h"
#include "runtime/serve/http/sse_writer.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HttpRequest Request(std::string method, std::string path, std::vector<HttpHeader> headers = {}) {
  return {.method = std::move(method), .path = std::move(path), .headers = std::move(headers)};
}

std::string AllowOf(const HeadDecision& decision) {
  for (const HttpHeader& header : decision.refusal->headers)
    if (header.name == "Allow") return header.value;
  return "";
}

class RoutesTest : public ::testing::Test {
 protected:
  RoutesTest() {
    const auto add = [this](std::string method, std::string path) {
      HttpRoute route{.method = method, .path = path};
      route.handle = [this, method, path](HttpRequest, std::shared_ptr<ResponseWriter>) {
        called = method + " " + path;
      };
      if (method == "POST") {
        route.content_type = "application/json";
        route.needs_body = true;
        route.body_bytes_max = 100;
      }
      routes.Add(std::move(route));
    };
    add("GET", "/v1/models");
    add("GET", "/v1/models/*");
    add("GET", "/v1/models/special/*");
    add("DELETE", "/v1/models/*");
    add("POST", "/v1/chat");
  }
  std::string Call(const HttpRequest& request) {
    called.clear();
    const HeadDecision decision = routes.Screen(request);
    if (decision.refusal.has_value()) return std::to_string(decision.refusal->status);
    routes.Handle(request, nullptr);
    return called;
  }
  HttpRoutes routes;
  std::string called;
};

TEST_F(RoutesTest, TheNearestPathAnswers) {
  EXPECT_EQ(Call(Request("GET", "/v1/models")), "GET /v1/models");
  EXPECT_EQ(Call(Request("HEAD", "/v1/models")), "GET /v1/models");
  EXPECT_EQ(Call(Request("GET", "/v1/models/org/name")), "GET /v1/models/*");
  EXPECT_EQ(Call(Request("GET", "/v1/models/special/x")), "GET /v1/models/special/*");
  EXPECT_EQ(Call(Request("DELETE", "/v1/models/special/x")), "DELETE /v1/models/*");
  for (const char* path : {"/", "/v1", "/v1/models/", "/v1/modelsx", "/V1/models", "//v1/models",
                           "/v1/models/../chat/..", "/etc/passwd", "*"}) {
    const std::string got = Call(Request("GET", path));
    EXPECT_TRUE(got == "404" || got == "GET /v1/models/*" || (got == "405" && path[0] == '*'))
        << path << ": " << got;
  }
}

TEST_F(RoutesTest, OtherMethodsAreToldWhichOnesThereAre) {
  const HeadDecision decision = routes.Screen(Request("PUT", "/v1/models/x"));
  EXPECT_EQ(decision.refusal->status, 405);
  EXPECT_EQ(AllowOf(decision), "DELETE, GET, HEAD, OPTIONS");
  const HeadDecision options = routes.Screen(Request("OPTIONS", "/v1/chat"));
  EXPECT_EQ(options.refusal->status, 204);
  EXPECT_EQ(AllowOf(options), "OPTIONS, POST");
  EXPECT_EQ(AllowOf(routes.Screen(Request("OPTIONS", "*"))), "DELETE, GET, HEAD, OPTIONS, POST");
  EXPECT_EQ(Call(Request("get", "/v1/models")), "405");
}

TEST_F(RoutesTest, BodiesMustBeThereAndOfTheRightKind) {
  const HttpHeader length{"Content-Length", "5"};
  EXPECT_EQ(Call(Request("POST", "/v1/chat")), "411");
  EXPECT_EQ(Call(Request("POST", "/v1/chat", {{"Content-Length", "00"}})), "411");
  EXPECT_EQ(Call(Request("POST", "/v1/chat", {length})), "415");
  EXPECT_EQ(Call(Request("POST", "/v1/chat", {length, {"Content-Type", "text/plain"}})), "415");
  EXPECT_EQ(Call(Request("POST", "/v1/chat", {length, {"Content-Type", "application/jsonx"}})),
            "415");
  for (const char* type : {"application/json", "Application/JSON ; charset=utf-8"}) {
    EXPECT_EQ(Call(Request("POST", "/v1/chat", {length, {"content-type", type}})), "POST /v1/chat");
  }
  EXPECT_EQ(
      routes
          .Screen(Request("POST", "/v1/chat",
                          {{"Transfer-Encoding", "chunked"}, {"Content-Type", "application/json"}}))
          .body_bytes_max,
      100u);
}

TEST(SseEvents, TextCannotLeaveItsField) {
  EXPECT_EQ(SseEventText("", "abc"), "data: abc\n\n");
  EXPECT_EQ(SseEventText("", ""), "data: \n\n");
  EXPECT_EQ(SseEventText("tick", "a\nb\r\nc\rd\n"),
            "event: tick\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
  EXPECT_EQ(SseEventText("x\ndata: evil", "a"), "event: x data: evil\ndata: a\n\n");
}

TEST(HttpErrors, EveryRefusalHasAStatusACodeAndAWholeSentence) {
  for (int i = 0; i <= static_cast<int>(HttpRefusal::kVersion); ++i) {
    const HttpError error = ErrorOf(static_cast<HttpRefusal>(i), "/path\"<script>");
    EXPECT_GE(error.status, 400);
    EXPECT_NE(ReasonPhrase(error.status), "Unknown");
    EXPECT_FALSE(error.code.empty());
    EXPECT_TRUE(error.message.ends_with(".")) << error.code;
    const HttpReply reply = ReplyOf(error, nullptr);
    EXPECT_THAT(reply.body, Not(HasSubstr("script")));
    EXPECT_THAT(reply.body, HasSubstr(std::string(error.code)));
  }
  const HttpReply made = ReplyOf(ErrorOf(HttpRefusal::kKeyMissing), [](const HttpError& error) {
    return HttpErrorBody{.content_type = "x/y", .body = std::string(error.code)};
  });
  EXPECT_EQ(made.body, "key_missing");
  EXPECT_EQ(made.content_type, "x/y");
  EXPECT_EQ(made.headers[0].name, "WWW-Authenticate");
}

TEST(ResponseHeads, DatesAndFraming) {
  EXPECT_EQ(HttpDate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
  EXPECT_EQ(HttpDate(1'709'210'096), "Thu, 29 Feb 2024 12:34:56 GMT");
  const std::string no_content =
      ResponseHead({.status = 204, .framing = BodyFraming::kNone, .cors_origin = "https://a"});
  EXPECT_THAT(no_content, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(no_content, HasSubstr("Access-Control-Allow-Origin: https://a\r\nVary: Origin\r\n"));
}

TEST(HttpOptions, EveryMistakeIsNamed) {
  EXPECT_TRUE(ValidateHttpServerOptions({}).ok());
  const auto message = [](const HttpServerOptions& options) {
    return std::string(ValidateHttpServerOptions(options).message());
  };
  EXPECT_THAT(message({.limits = {.connections_max = 0}}), HasSubstr("connections_max"));
  EXPECT_THAT(message({.limits = {.idle_timeout_ns = -1}}), HasSubstr("idle_timeout_ns"));
  EXPECT_THAT(message({.limits = {.bodies_bytes_max = 1}}), HasSubstr("bodies_bytes_max"));
  EXPECT_THAT(message({.tls = {.certificate_path = "x"}}), HasSubstr("key file"));
  EXPECT_THAT(message({.io_threads = 0}), HasSubstr("io_threads"));
  EXPECT_THAT(message({.host_names = {"http://x"}}), HasSubstr("host_names"));
  EXPECT_THAT(message({.origins = {"chat.example"}}), HasSubstr("origins"));
  EXPECT_THAT(message({.origins = {"https://chat.example/"}}), HasSubstr("origins"));
}

}  // namespace
}  // namespace hearth
