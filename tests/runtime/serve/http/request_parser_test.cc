// What counts as a request and what does not: every case that proxies and servers have disagreed
// about is refused, with the status that says why.
#include "runtime/serve/http/request_parser.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using Step = RequestParser::Step;

struct Outcome {
  Step step = Step::kMore;
  HttpRefusal refusal = HttpRefusal::kInternal;
  HttpRequest request;
  RequestHead head;  // without the request
  std::string rest;
};

Outcome Parse(std::string_view text, const HttpLimits& limits = {},
              uint64_t body_bytes_max = UINT64_MAX) {
  RequestParser parser(limits);
  Outcome outcome;
  while (true) {
    const RequestParser::Fed fed = parser.Feed(text);
    text.remove_prefix(fed.used);
    outcome.step = fed.step;
    if (fed.step == Step::kHead) {
      outcome.head = parser.head();
      parser.LimitBody(body_bytes_max);
      continue;
    }
    if (fed.step == Step::kRefused) outcome.refusal = parser.refusal();
    if (fed.step == Step::kDone) outcome.request = parser.Take();
    outcome.rest = std::string(text);
    return outcome;
  }
}

std::string WithHeaders(std::string_view lines) {
  return "POST /a HTTP/1.1\r\nHost: localhost\r\n" + std::string(lines) + "\r\n";
}

TEST(RequestParser, ReadsARequestAndLeavesTheNext) {
  const Outcome got = Parse(
      "POST /v1/x%20y?a=1&b=%41+c HTTP/1.1\r\nHost: localhost:80\r\nX-Thing:  two words \r\n"
      "content-length: 4\r\n\r\nbodyGET /");
  ASSERT_EQ(got.step, Step::kDone);
  EXPECT_EQ(got.request.method, "POST");
  EXPECT_EQ(got.request.path, "/v1/x y");
  EXPECT_EQ(got.request.query, "a=1&b=%41+c");
  EXPECT_EQ(got.request.QueryValue("b"), "A c");
  EXPECT_EQ(got.request.QueryValue("c"), std::nullopt);
  EXPECT_EQ(got.request.Header("x-THING"), "two words");
  EXPECT_EQ(got.request.body, "body");
  EXPECT_EQ(got.rest, "GET /");
  EXPECT_EQ(got.head.host, "localhost:80");
  EXPECT_TRUE(got.head.keep_alive);
}

TEST(RequestParser, BodiesMayHoldAnyByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const Outcome got = Parse(WithHeaders("Content-Length: 256\r\n") + bytes);
  ASSERT_EQ(got.step, Step::kDone);
  EXPECT_EQ(got.request.body, bytes);
  const Outcome chunks =
      Parse(WithHeaders("Transfer-Encoding: Chunked\r\n") + "100\r\n" + bytes + "\r\n0\r\n\r\n");
  ASSERT_EQ(chunks.step, Step::kDone);
  EXPECT_EQ(chunks.request.body, bytes);
}

TEST(RequestParser, ABodyThatIsShorterThanAnnouncedIsWaitedFor) {
  EXPECT_EQ(Parse(WithHeaders("Content-Length: 10\r\n") + "short").step, Step::kMore);
  EXPECT_EQ(Parse(WithHeaders("Transfer-Encoding: chunked\r\n") + "5\r\nabc").step, Step::kMore);
  EXPECT_EQ(Parse(WithHeaders("Transfer-Encoding: chunked\r\n") + "1\r\na\r\n0\r\n").step,
            Step::kMore);
}

TEST(RequestParser, OneEmptyLineBeforeARequestIsForgiven) {
  EXPECT_EQ(Parse("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").step, Step::kDone);
  EXPECT_EQ(Parse("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").step, Step::kRefused);
  EXPECT_EQ(Parse("\rG").step, Step::kRefused);
  EXPECT_EQ(Parse("\r").step, Step::kMore);
}

TEST(RequestParser, AbsoluteTargetsNameTheHost) {
  const Outcome got = Parse("GET http://evil.example/path?q HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_EQ(got.step, Step::kDone);
  EXPECT_EQ(got.head.host, "evil.example");
  EXPECT_EQ(got.request.path, "/path");
  EXPECT_EQ(got.request.query, "q");
  EXPECT_EQ(Parse("GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n").refusal, HttpRefusal::kBadTarget);
}

TEST(RequestParser, KeepAliveFollowsVersionAndHeader) {
  EXPECT_TRUE(Parse("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head.keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").head.keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.0\r\n\r\n").head.keep_alive);
}

struct BadCase {
  std::string_view what;
  std::string text;
  HttpRefusal refusal;
};

TEST(RequestParser, BadLinesAreRefused) {
  using R = HttpRefusal;
  const std::string end = "\r\n\r\n";
  const std::vector<BadCase> cases = {
      {"TLS on a plain port", std::string("\x16\x03\x01\x02\x00\x01", 6), R::kBadRequest},
      {"bare LF", "GET / HTTP/1.1\nHost: a\n\n", R::kBadRequest},
      {"bare CR", "GET / HTTP/1.1\rHost: a\r\r", R::kBadRequest},
      {"LF in a value", WithHeaders("X: a\nY: b\r\n"), R::kBadRequest},
      {"NUL", std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 30), R::kBadRequest},
      {"DEL", WithHeaders("X: a\x7f\r\n"), R::kBadRequest},
      {"folded header", WithHeaders("X: a\r\n b\r\n"), R::kBadRequest},
      {"folded first header", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", R::kBadRequest},
      {"space before the colon", WithHeaders("Content-Length : 3\r\n"), R::kBadRequest},
      {"no colon", WithHeaders("Content-Length\r\n"), R::kBadRequest},
      {"empty name", WithHeaders(": x\r\n"), R::kBadRequest},
      {"space in the method", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadRequest},
      {"two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"a tab in the line", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"no version", "GET /\r\n\r\n", R::kBadTarget},
      {"not a version", "GET / HTTP/1.x\r\nHost: a\r\n\r\n", R::kBadRequest},
      {"lower case", "GET / http/1.1\r\nHost: a\r\n\r\n", R::kBadRequest},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", R::kVersion},
      {"version 1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", R::kVersion},
      {"no slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"star", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"authority", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"fragment", "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"broken escape", "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"broken escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"escaped NUL", "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"escaped line end", "GET /%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"escaped high byte", "GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"high byte", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", R::kBadTarget},
      {"no Host", "GET / HTTP/1.1\r\n\r\n", R::kBadHost},
      {"two Hosts", WithHeaders("Host: b\r\n"), R::kBadHost},
      {"unknown expectation", WithHeaders("Expect: a-miracle\r\n"), R::kExpectation},
  };
  for (const BadCase& c : cases) {
    const Outcome got = Parse(c.text);
    EXPECT_EQ(got.step, Step::kRefused) << c.what;
    EXPECT_EQ(got.refusal, c.refusal) << c.what;
  }
}

TEST(RequestParser, WhereABodyEndsIsNeverInDoubt) {
  using R = HttpRefusal;
  const std::vector<BadCase> cases = {
      {"both", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", R::kAmbiguousBody},
      {"both, the other way", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
       R::kAmbiguousBody},
      {"two lengths", "Content-Length: 3\r\nContent-Length: 4\r\n", R::kAmbiguousBody},
      {"the same twice", "Content-Length: 3\r\nContent-Length: 3\r\n", R::kAmbiguousBody},
      {"a list", "Content-Length: 3, 3\r\n", R::kAmbiguousBody},
      {"negative", "Content-Length: -1\r\n", R::kAmbiguousBody},
      {"a plus", "Content-Length: +3\r\n", R::kAmbiguousBody},
      {"hex", "Content-Length: 0x3\r\n", R::kAmbiguousBody},
      {"empty", "Content-Length: \r\n", R::kAmbiguousBody},
      {"beyond 64 bits", "Content-Length: 18446744073709551617\r\n", R::kAmbiguousBody},
      {"gzip", "Transfer-Encoding: gzip\r\n", R::kTransferEncoding},
      {"gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n", R::kTransferEncoding},
      {"chunked, identity", "Transfer-Encoding: chunked, identity\r\n", R::kTransferEncoding},
      {"chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
       R::kAmbiguousBody},
      {"odd chunked", "Transfer-Encoding: xchunked\r\n", R::kTransferEncoding},
      {"odd chunked and a length", "Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n",
       R::kTransferEncoding},
      {"a length and odd chunked", "Content-Length: 3\r\nTransfer-Encoding: xchunked\r\n",
       R::kAmbiguousBody},
      {"tab after chunked", "Transfer-Encoding: chunked,\r\n", R::kTransferEncoding},
  };
  for (const BadCase& c : cases) {
    const Outcome got = Parse(WithHeaders(c.text) + "abc");
    EXPECT_EQ(got.step, Step::kRefused) << c.what;
    EXPECT_EQ(got.refusal, c.refusal) << c.what;
  }
  const Outcome old = Parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  EXPECT_EQ(old.refusal, R::kAmbiguousBody);
}

TEST(RequestParser, BrokenChunksAreRefused) {
  for (const std::string_view body :
       {"x\r\n", "-1\r\na\r\n", "\r\n", "3\nabc\r\n", "3\r\nabcd\r\n\r\n", "3\r\nabc\n0\r\n\r\n",
        "10000000000000000\r\n", "0x3\r\nabc\r\n\r\n", " 3\r\nabc\r\n", "3 \rabc",
        "3;\x01\r\nabc\r\n", "0\r\nnot a trailer\r\n\r\n", "0\r\nContent-Length: 3\r\n\r\n"}) {
    const Outcome got = Parse(WithHeaders("Transfer-Encoding: chunked\r\n") + std::string(body));
    EXPECT_EQ(got.step, Step::kRefused) << body;
  }
}

TEST(RequestParser, TrailersAreReadAndForgotten) {
  const Outcome got = Parse(WithHeaders("Transfer-Encoding: chunked\r\n") +
                            "1\r\na\r\n0\r\nAuthorization: Bearer x\r\nHost: evil\r\n\r\nNEXT");
  ASSERT_EQ(got.step, Step::kDone);
  EXPECT_EQ(got.request.Header("Authorization"), std::nullopt);
  EXPECT_EQ(got.head.host, "localhost");
  EXPECT_EQ(got.rest, "NEXT");
}

TEST(RequestParser, LimitsHoldEachByEach) {
  using R = HttpRefusal;
  const HttpLimits limits{
      .target_bytes_max = 100, .head_bytes_max = 400, .header_count_max = 10, .body_bytes_max = 20};
  const auto get = [](size_t target_bytes) {
    return "GET /" + std::string(target_bytes - 1, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };
  EXPECT_EQ(Parse(get(100), limits).step, Step::kDone);
  EXPECT_EQ(Parse(get(101), limits).refusal, R::kTargetTooLong);
  EXPECT_EQ(Parse("GET /" + std::string(300, 'x'), limits).refusal, R::kTargetTooLong);
  std::string headers;
  for (int i = 0; i < 9; ++i) headers += "X: y\r\n";
  EXPECT_EQ(Parse(WithHeaders(headers), limits).step, Step::kDone);
  EXPECT_EQ(Parse(WithHeaders(headers + "X: y\r\n"), limits).refusal, R::kHeadTooLarge);
  EXPECT_EQ(Parse(WithHeaders("X: " + std::string(400, 'z')), limits).refusal, R::kHeadTooLarge);
  const std::string body(21, 'b');
  EXPECT_EQ(Parse(WithHeaders("Content-Length: 20\r\n") + body.substr(1), limits).step,
            Step::kDone);
  EXPECT_EQ(Parse(WithHeaders("Content-Length: 21\r\n") + body, limits).refusal, R::kBodyTooLarge);
  EXPECT_EQ(Parse(WithHeaders("Content-Length: 11\r\n") + body, limits, 10).refusal,
            R::kBodyTooLarge);
  const std::string chunked = WithHeaders("Transfer-Encoding: chunked\r\n");
  EXPECT_EQ(Parse(chunked + "14\r\n" + body.substr(1) + "\r\n0\r\n\r\n", limits).step, Step::kDone);
  EXPECT_EQ(Parse(chunked + "14\r\n" + body.substr(1) + "\r\n1\r\nb\r\n", limits).refusal,
            R::kBodyTooLarge);
  EXPECT_EQ(Parse(chunked + "ffffffffffffffff\r\n", limits).refusal, R::kBodyTooLarge);
  EXPECT_EQ(Parse(chunked + "1;" + std::string(5000, 'e'), limits).refusal, R::kBadRequest);
}

}  // namespace
}  // namespace hearth
