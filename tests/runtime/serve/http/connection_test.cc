// One connection on a made-up wire and clock: requests in any pieces, answers in any order, every
// timeout, and all the ways in which a client goes away.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serve/http/answer_queue.h"
#include "runtime/serve/http/http_connection.h"
#include "runtime/serve/http/sse_writer.h"
#include "tests/runtime/serve/http/fake_stream.h"

namespace hearth {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr std::string_view kGet = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string Post(std::string_view body) {
  return "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

void AnswerWithBody(const HttpRequest& request, ResponseWriter& writer) {
  writer.Send({.content_type = "text/plain", .body = "got:" + request.body});
}

TEST(Connection, AnswersAndStaysOpen) {
  FakeServer server;
  server.handler.answer = AnswerWithBody;
  const auto wire = server.Connect();
  wire->Send(kGet);
  EXPECT_EQ(wire->TakeOutput(),
            "HTTP/1.1 200 OK\r\n"
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: text/plain\r\n"
            "Content-Length: 4\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Cache-Control: no-store\r\n"
            "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
            "Referrer-Policy: no-referrer\r\n"
            "Cross-Origin-Resource-Policy: same-origin\r\n"
            "\r\n"
            "got:");
  wire->Send(Post("two"));
  EXPECT_THAT(wire->TakeOutput(), EndsWith("got:two"));
  EXPECT_FALSE(wire->closed);
  EXPECT_EQ(server.state->Stats().requests, 2u);
  EXPECT_EQ(server.state->Stats().requests_running, 0u);
  EXPECT_EQ(server.state->Stats().responses[1], 2u);
}

TEST(Connection, RequestsMayArriveInPiecesOfAnyLength) {
  const std::string all = Post("first") + std::string(kGet) +
                          "POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                          "\r\n3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n" +
                          Post("last");
  for (size_t piece = 1; piece <= all.size(); ++piece) {
    FakeServer server;
    std::string bodies;
    server.handler.answer = [&](const HttpRequest& request, ResponseWriter& writer) {
      bodies += "[" + request.body + "]";
      writer.Send({.body = "x"});
    };
    const auto wire = server.Connect();
    wire->read_bytes_max = piece;
    wire->Send(all);
    ASSERT_EQ(bodies, "[first][][abc0123456789][last]") << "pieces of " << piece;
  }
}

TEST(Connection, PipelinedRequestsAreAnsweredInTheirOrderOneAtATime) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(Post("1") + Post("2") + Post("3"));
  for (const std::string body : {"1", "2", "3"}) {
    ASSERT_EQ(server.handler.kept.size(), 1u);
    EXPECT_EQ(server.handler.kept[0].request.body, body);
    server.handler.kept[0].writer->Send({.body = "answer " + body});
    server.handler.kept.erase(server.handler.kept.begin());
    wire->Run();
    EXPECT_THAT(wire->TakeOutput(), EndsWith("answer " + body));
  }
}

TEST(Connection, WhatIsSentFarAheadEndsTheConnectionWithTheAnswer) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  wire->Send(std::string(40'000, 'x'));
  EXPECT_EQ(wire->input, "");  // read all the same, so that the client's end is seen
  server.handler.kept[0].writer->Send({.body = "done"});
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(wire->send_shut);
}

TEST(Connection, StreamsChunksAndGoesOn) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  ResponseWriter& writer = *server.handler.kept[0].writer;
  EXPECT_EQ(writer.Write("too early"), WriteResult::kGone);
  EXPECT_EQ(writer.StartStream({}), WriteResult::kQueued);
  EXPECT_EQ(writer.Send({}), WriteResult::kGone);
  EXPECT_EQ(writer.Write("abc"), WriteResult::kQueued);
  EXPECT_EQ(writer.Write(""), WriteResult::kQueued);  // would be the last chunk
  wire->Run();
  EXPECT_EQ(server.state->Stats().streams_open, 1u);
  EXPECT_EQ(writer.Write(std::string(20, 'y')), WriteResult::kQueued);
  EXPECT_EQ(writer.Finish(), WriteResult::kQueued);
  EXPECT_EQ(writer.Write("late"), WriteResult::kGone);
  wire->Run();
  const std::string output = wire->TakeOutput();
  EXPECT_THAT(output, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(output, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(output,
              EndsWith("\r\n\r\n3\r\nabc\r\n14\r\n" + std::string(20, 'y') + "\r\n0\r\n\r\n"));
  wire->Send(kGet);
  EXPECT_EQ(server.handler.kept.size(), 2u);
}

TEST(Connection, OldClientsGetTheStreamUntilTheConnectionCloses) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send("GET / HTTP/1.0\r\n\r\n");
  ResponseWriter& writer = *server.handler.kept[0].writer;
  writer.StartStream({});
  writer.Write("abc");
  writer.Finish();
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(), EndsWith("\r\n\r\nabc"));
  EXPECT_TRUE(wire->send_shut);
}

TEST(Connection, HeadHasTheLengthButNoBody) {
  FakeServer server;
  server.handler.answer = AnswerWithBody;
  const auto wire = server.Connect();
  wire->Send("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string output = wire->TakeOutput();
  EXPECT_THAT(output, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(output, EndsWith("\r\n\r\n"));
  EXPECT_FALSE(wire->closed);
}

TEST(Connection, AWriterThatIsDroppedAnswersFiveHundred) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  server.handler.kept.clear();
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(), StartsWith("HTTP/1.1 500 "));
}

TEST(Connection, AWriterDroppedInMidStreamCutsTheConnection) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  server.handler.kept[0].writer->StartStream({});
  server.handler.kept[0].writer->Write("half");
  server.handler.kept.clear();
  wire->Run();
  EXPECT_TRUE(wire->closed);
  EXPECT_THAT(wire->TakeOutput(), Not(EndsWith("0\r\n\r\n")));
  EXPECT_EQ(server.state->Stats().connections_open, 0u);
}

TEST(Connection, AStaleWriterCannotTouchTheNextRequest) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  wire->Send(kGet);
  server.handler.kept[0].writer->Send({.body = "one"});
  wire->Run();
  ASSERT_EQ(server.handler.kept.size(), 2u);
  wire->TakeOutput();
  EXPECT_EQ(server.handler.kept[0].writer->Send({.body = "again"}), WriteResult::kGone);
  EXPECT_EQ(server.handler.kept[0].writer->StartStream({}), WriteResult::kGone);
  server.handler.kept.erase(server.handler.kept.begin());
  wire->Run();
  EXPECT_EQ(wire->TakeOutput(), "");
  server.handler.kept[0].writer->Send({.body = "two"});
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(), EndsWith("two"));
}

// --- Clients that go away.

class GoneTest : public ::testing::TestWithParam<StreamEnd> {
 protected:
  void Ask() {
    wire = server.Connect();
    wire->Send(Post("x"));
    writer = server.handler.kept[0].writer;
    writer->OnGone([this] { ++gone_count; });
  }
  FakeServer server;
  std::shared_ptr<FakeWire> wire;
  std::shared_ptr<ResponseWriter> writer;
  int gone_count = 0;
};

TEST_P(GoneTest, WhileTheRequestWaits) {
  Ask();
  EXPECT_FALSE(writer->gone());
  wire->End(GetParam());
  EXPECT_EQ(gone_count, 1);
  EXPECT_TRUE(writer->gone());
  EXPECT_EQ(writer->Send({}), WriteResult::kGone);
  EXPECT_TRUE(wire->closed);
  const HttpServerStats stats = server.state->Stats();
  EXPECT_EQ(stats.clients_gone, 1u);
  EXPECT_EQ(stats.connections_open, 0u);
  EXPECT_EQ(stats.requests_running, 0u);
  EXPECT_EQ(stats.body_bytes, 0u);
}

TEST_P(GoneTest, InMidStream) {
  Ask();
  writer->StartStream({});
  writer->Write("abc");
  wire->Run();
  wire->End(GetParam());
  EXPECT_EQ(gone_count, 1);
  EXPECT_EQ(writer->Write("d"), WriteResult::kGone);
  EXPECT_EQ(writer->Finish(), WriteResult::kGone);
  EXPECT_EQ(server.state->Stats().streams_open, 0u);
}

TEST_P(GoneTest, WithTheNextRequestAlreadySent) {
  Ask();
  wire->Send(Post("y"));
  wire->End(GetParam());
  EXPECT_EQ(gone_count, 1);
  EXPECT_EQ(server.handler.kept.size(), 1u);
}

TEST_P(GoneTest, WhoAsksLateIsToldAtOnce) {
  Ask();
  wire->End(GetParam());
  int late = 0;
  writer->OnGone([&] { ++late; });
  EXPECT_EQ(late, 1);
}

TEST_P(GoneTest, NobodyIsToldAfterTheAnswer) {
  Ask();
  writer->Send({.body = "whole"});
  wire->Run();
  wire->End(GetParam());
  EXPECT_EQ(gone_count, 0);
  EXPECT_FALSE(writer->gone());
  EXPECT_EQ(server.state->Stats().clients_gone, 0u);
}

TEST_P(GoneTest, ACallbackMayHoldItsWriterAndUseIt) {
  Ask();
  std::weak_ptr<ResponseWriter> weak = writer;
  WriteResult result = WriteResult::kQueued;
  writer->OnGone([held = writer, &result] { result = held->Finish(); });
  writer.reset();
  server.handler.kept.clear();
  EXPECT_FALSE(weak.expired());
  wire->End(GetParam());
  EXPECT_EQ(result, WriteResult::kGone);
  EXPECT_TRUE(weak.expired());
}

INSTANTIATE_TEST_SUITE_P(Ends, GoneTest, ::testing::Values(StreamEnd::kEnd, StreamEnd::kError));

TEST(Connection, AWholeAnswerStillGoesToAClientThatOnlyStoppedSending) {
  FakeServer server;
  server.handler.answer = AnswerWithBody;
  const auto wire = server.Connect();
  wire->room_bytes = 10;
  wire->input = Post("printf | nc");
  wire->End();
  EXPECT_FALSE(wire->closed);
  wire->room_bytes = UINT64_MAX;
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(), EndsWith("got:printf | nc"));
  EXPECT_TRUE(wire->closed);
}

// --- Slow readers.

TEST(Connection, ASlowReaderIsCutWhenTooMuchWaits) {
  FakeServer server({.limits = {.queued_bytes_max = 4096}});
  const auto wire = server.Connect();
  wire->room_bytes = 100;
  wire->Send(kGet);
  ResponseWriter& writer = *server.handler.kept[0].writer;
  int gone_count = 0;
  writer.OnGone([&] { ++gone_count; });
  writer.StartStream({});
  const std::string piece(100, 'z');
  uint64_t queued = 0;
  while (writer.Write(piece) == WriteResult::kQueued) {
    wire->Run();
    queued = writer.queued_bytes();
    ASSERT_LE(queued, 4096u);
  }
  EXPECT_GT(queued, 3900u);
  EXPECT_TRUE(writer.gone());
  wire->Run();
  EXPECT_EQ(gone_count, 1);
  EXPECT_TRUE(wire->closed);
  EXPECT_EQ(server.state->Stats().slow_readers_cut, 1u);
}

TEST(Connection, AReaderThatTakesNothingIsCutByTheClockOneThatTakesALittleIsNot) {
  FakeServer server({.limits = {.write_timeout_ns = 5 * kSecondNs}});
  server.handler.answer = [](const HttpRequest&, ResponseWriter& writer) {
    writer.Send({.body = std::string(100'000, 'b')});  // a whole answer may be any size
  };
  const auto wire = server.Connect();
  wire->room_bytes = 10;
  wire->Send(kGet);
  for (int i = 0; i < 10; ++i) {
    wire->Advance(4 * kSecondNs);
    ASSERT_FALSE(wire->closed);
    wire->room_bytes = 10;
    wire->Run();
  }
  wire->Advance(5 * kSecondNs);
  EXPECT_TRUE(wire->closed);
  EXPECT_EQ(server.state->Stats().slow_readers_cut, 1u);
}

// --- The clock.

TEST(Connection, AHeadThatDripsIsTimedFromItsFirstByte) {
  FakeServer server;
  const auto wire = server.Connect();
  for (const char c : std::string("GET / HTT")) {
    wire->Send(std::string(1, c));
    wire->Advance(kSecondNs);
    ASSERT_EQ(wire->output, "");
  }
  wire->Advance(kSecondNs);
  EXPECT_THAT(wire->TakeOutput(), StartsWith("HTTP/1.1 408 "));
  EXPECT_TRUE(wire->send_shut);
  wire->Advance(2 * kSecondNs);
  EXPECT_TRUE(wire->closed);
  EXPECT_EQ(server.state->Stats().timeouts, 1u);
}

TEST(Connection, ABodyThatDripsIsTimed) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n");
  for (int i = 0; i < 59; ++i) {
    wire->Send("x");
    wire->Advance(kSecondNs);
  }
  EXPECT_EQ(wire->output, "");
  wire->Advance(kSecondNs);
  EXPECT_THAT(wire->TakeOutput(), StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(server.state->Stats().body_bytes, 0u);
}

TEST(Connection, IdleConnectionsCloseWithoutAWord) {
  FakeServer server;
  server.handler.answer = AnswerWithBody;
  const auto silent = server.Connect();
  silent->Advance(10 * kSecondNs);  // never asked anything: the head's time
  EXPECT_TRUE(silent->closed);
  const auto wire = server.Connect();
  wire->Send(kGet);
  wire->TakeOutput();
  wire->Advance(74 * kSecondNs);
  EXPECT_FALSE(wire->closed);
  wire->Advance(kSecondNs);
  EXPECT_TRUE(wire->closed);
  EXPECT_EQ(wire->TakeOutput(), "");
}

TEST(Connection, ARequestMayWaitForItsAnswerAsLongAsItTakes) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  wire->Advance(3600 * kSecondNs);
  server.handler.kept[0].writer->Send({.body = "at last"});
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(), EndsWith("at last"));
}

TEST(Connection, ASilentStreamIsKeptAwakeByTheClockAlone) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  ResponseWriter& writer = *server.handler.kept[0].writer;
  writer.StartStream({.keep_alive_text = ": hi\n\n", .keep_alive_ns = 15 * kSecondNs});
  wire->Run();
  wire->TakeOutput();
  wire->Advance(14 * kSecondNs);
  EXPECT_EQ(wire->TakeOutput(), "");
  wire->Advance(kSecondNs);
  EXPECT_EQ(wire->TakeOutput(), "6\r\n: hi\n\n\r\n");
  wire->Advance(14 * kSecondNs);
  writer.Write("data");
  wire->Run();
  EXPECT_EQ(wire->TakeOutput(), "4\r\ndata\r\n");
  wire->Advance(14 * kSecondNs);  // counted from the last output
  EXPECT_EQ(wire->TakeOutput(), "");
  wire->Advance(kSecondNs);
  EXPECT_EQ(wire->TakeOutput(), "6\r\n: hi\n\n\r\n");
  writer.Finish();
  wire->Run();
  EXPECT_EQ(wire->TakeOutput(), "0\r\n\r\n");
  wire->Advance(30 * kSecondNs);
  EXPECT_EQ(wire->TakeOutput(), "");
}

TEST(Connection, EventsAreWholeAndSilenceIsFilledWithComments) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send("GET /a HTTP/1.0\r\nHost: localhost\r\n\r\n");  // no chunks around the events
  SseWriter events(server.handler.kept[0].writer, {.keep_alive_ns = kSecondNs});
  events.Data("one\ntwo");
  events.Event("tick", "{}");
  events.Comment("note");
  wire->Run();
  EXPECT_THAT(wire->TakeOutput(),
              EndsWith("\r\n\r\ndata: one\ndata: two\n\nevent: tick\ndata: {}\n\n: note\n\n"));
  wire->Advance(kSecondNs);
  EXPECT_EQ(wire->TakeOutput(), ": keep-alive\n\n");
  EXPECT_EQ(events.Finish(), WriteResult::kQueued);
  wire->Run();
  EXPECT_TRUE(wire->send_shut);
}

// --- Limits and refusals that need a connection.

TEST(Connection, HundredContinueIsSentOnlyToWhoWaitsAndIsLetIn) {
  FakeServer server;
  server.handler.screen = [](const HttpRequest& head) {
    HeadDecision decision;
    if (head.path == "/no") decision.refusal = HttpReply{.status = 404};
    return decision;
  };
  server.handler.answer = AnswerWithBody;
  const std::string tail =
      " HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: 3\r\n\r\n";
  const auto wire = server.Connect();
  wire->Send("POST /yes" + tail);
  EXPECT_EQ(wire->TakeOutput(), "HTTP/1.1 100 Continue\r\n\r\n");
  wire->Send("abc");
  EXPECT_THAT(wire->TakeOutput(), EndsWith("got:abc"));
  wire->Send("POST /yes" + tail + "abc");
  EXPECT_THAT(wire->TakeOutput(), StartsWith("HTTP/1.1 200 OK"));
  wire->Send("POST /no" + tail);
  EXPECT_THAT(wire->TakeOutput(), StartsWith("HTTP/1.1 404 "));
  EXPECT_TRUE(wire->send_shut);  // the body may come or not: nobody can tell where a request begins
}

TEST(Connection, BodiesHaveALimitOfTheirOwnOfTheRouteAndOfAllTogether) {
  FakeServer server({.limits = {.body_bytes_max = 1000, .bodies_bytes_max = 1500}});
  server.handler.screen = [](const HttpRequest& head) {
    return HeadDecision{.body_bytes_max = head.path == "/small" ? 10u : UINT64_MAX};
  };
  const auto first = server.Connect();
  first->Send(Post(std::string(1000, 'x')));
  ASSERT_EQ(server.handler.kept.size(), 1u);
  const auto second = server.Connect();
  second->Send(Post(std::string(501, 'y')));
  EXPECT_THAT(second->TakeOutput(), StartsWith("HTTP/1.1 503 "));
  const auto third = server.Connect();
  third->Send(Post(std::string(500, 'z')));
  EXPECT_EQ(server.handler.kept.size(), 2u);
  EXPECT_EQ(server.state->Stats().body_bytes, 1500u);
  const auto large = server.Connect();
  large->Send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_THAT(large->TakeOutput(), StartsWith("HTTP/1.1 413 "));
  first->End();
  third->End();
  EXPECT_EQ(server.state->Stats().body_bytes, 0u);
  const auto chunks = server.Connect();
  chunks->Send(
      "POST /small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "8\r\n12345678\r\n");
  EXPECT_EQ(chunks->output, "");
  chunks->Send("3\r\n");
  EXPECT_THAT(chunks->TakeOutput(), StartsWith("HTTP/1.1 413 "));
}

TEST(Connection, ARefusedClientIsHeardOutForAWhileSoThatItReadsTheRefusal) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n");
  EXPECT_THAT(wire->TakeOutput(), StartsWith("HTTP/1.1 413 "));
  wire->Send(std::string(1 << 20, 'x'));
  EXPECT_EQ(wire->input, "");
  EXPECT_FALSE(wire->closed);
  wire->End();
  EXPECT_TRUE(wire->closed);
}

TEST(Connection, OneTooManyIsToldAndManyTooManyAreDropped) {
  FakeServer server({.limits = {.connections_max = 3, .connections_per_peer_max = 2}});
  server.handler.answer = AnswerWithBody;
  const PeerName other{.kind = PeerKind::kNetwork, .name = "127.0.0.2"};
  server.Connect();
  const auto second = server.Connect();
  const auto third = server.Connect();  // of one peer
  third->Send(kGet);
  EXPECT_THAT(third->TakeOutput(), StartsWith("HTTP/1.1 503 "));
  third->End();
  const auto fourth = server.Connect(other);
  fourth->Send(kGet);
  EXPECT_THAT(fourth->TakeOutput(), StartsWith("HTTP/1.1 200 "));
  const auto fifth = server.Connect(other);  // in all
  fifth->Send(kGet);
  const std::string refusal = fifth->TakeOutput();
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refusal, HasSubstr("Retry-After: 1\r\n"));
  for (int i = 0; i < 100; ++i) server.Connect(other);
  EXPECT_TRUE(server.Connect(other)->closed);
  EXPECT_LE(server.state->Stats().connections_open, 3u + ServerState::kRefusedMax);
  second->End();
}

TEST(Connection, TheLastRequestOfAConnectionSaysSo) {
  FakeServer server({.limits = {.requests_per_connection_max = 2}});
  server.handler.answer = AnswerWithBody;
  const auto wire = server.Connect();
  wire->Send(kGet);
  EXPECT_THAT(wire->TakeOutput(), Not(HasSubstr("Connection: close")));
  wire->Send(kGet);
  EXPECT_THAT(wire->TakeOutput(), HasSubstr("Connection: close"));
  EXPECT_TRUE(wire->send_shut);
}

TEST(Connection, DrainClosesIdleOnesAndLetsRunningOnesFinish) {
  FakeServer server;
  const auto idle = server.Connect();
  const auto running = server.Connect();
  running->Send(kGet);
  const auto late = server.Connect();
  late->Send("GET / HTTP/1.1\r\nHo");
  server.state->BeginDrain();
  for (const auto& connection : server.state->Connections()) connection->Drain();
  for (const auto& wire : server.wires) wire->Run();
  EXPECT_TRUE(idle->closed);
  late->Send("st: localhost\r\n\r\n");
  EXPECT_THAT(late->TakeOutput(), StartsWith("HTTP/1.1 503 "));
  server.handler.kept[0].writer->Send({.body = "finished"});
  running->Run();
  const std::string output = running->TakeOutput();
  EXPECT_THAT(output, EndsWith("finished"));
  EXPECT_THAT(output, HasSubstr("Connection: close\r\n"));
}

TEST(Connection, CutTellsWhoWaits) {
  FakeServer server;
  const auto wire = server.Connect();
  wire->Send(kGet);
  bool told = false;
  server.handler.kept[0].writer->OnGone([&] { told = true; });
  server.state->Connections()[0]->Cut();
  wire->Run();
  EXPECT_TRUE(told);
  EXPECT_EQ(server.state->Stats().connections_open, 0u);
}

TEST(Connection, HeadersThatWouldSplitTheAnswerAreLeftOut) {
  FakeServer server;
  server.handler.answer = [](const HttpRequest&, ResponseWriter& writer) {
    writer.Send({.body = "x",
                 .headers = {{"X-Good", "yes"}, {"X-Bad", "a\r\nSet-Cookie: b"}, {"X Bad", "c"}}});
  };
  const auto wire = server.Connect();
  wire->Send(kGet);
  const std::string output = wire->TakeOutput();
  EXPECT_THAT(output, HasSubstr("X-Good: yes\r\n"));
  EXPECT_THAT(output, Not(HasSubstr("Cookie")));
  EXPECT_THAT(output, Not(HasSubstr("X Bad")));
}

TEST(Connection, AFailedHandshakeEndsIt) {
  FakeServer server;
  auto wire = std::make_shared<FakeWire>(server.clock);
  wire->start_fails = true;
  const PeerName peer{.kind = PeerKind::kNetwork, .name = "127.0.0.1"};
  const ServerState::Admission admission = server.state->Admit(peer);
  MakeConnection(server.state, std::make_unique<FakeStream>(wire), peer, admission)->Start();
  wire->Run();
  EXPECT_TRUE(wire->closed);
  EXPECT_EQ(server.state->Stats().connections_open, 0u);
}

}  // namespace
}  // namespace hearth
