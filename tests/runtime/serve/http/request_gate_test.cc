// Who is let in.
#include "runtime/serve/http/request_gate.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace hearth {
namespace {

std::array<uint8_t, kApiKeyRandomBytes> Random(uint8_t seed) {
  std::array<uint8_t, kApiKeyRandomBytes> random{};
  for (size_t i = 0; i < random.size(); ++i) random[i] = static_cast<uint8_t>(seed + 7 * i);
  return random;
}

RequestHead HeadWith(std::string host, std::vector<HttpHeader> headers = {},
                     std::string path = "/v1/x") {
  RequestHead head;
  head.request.method = "POST";
  head.request.path = std::move(path);
  head.request.headers = std::move(headers);
  head.host = std::move(host);
  return head;
}

TEST(RequestGate, OnlyNamesThatNobodyElseCanPointAtUsAreHosts) {
  const std::vector<std::string> names = {"hearth.example"};
  for (const std::string_view host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:80", "192.168.1.7:8080", "[::1]",
        "[::1]:8080", "[fe80::1]", "hearth.example", "Hearth.Example:443", "localhost:"}) {
    EXPECT_TRUE(IsAllowedHost(host, names)) << host;
  }
  for (const std::string_view host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "hearth.example.evil",
        "evil.example:127", "localhost:80:80", "localhost:x", "[::1", "[localhost]", "[::1]x",
        "::1", "1.2.3", "0x7f.1", "user@localhost", "localhost/", "127.0.0.1:999999"}) {
    EXPECT_FALSE(IsAllowedHost(host, names)) << host;
  }
}

TEST(RequestGate, HostIsNotAskedOnUnixSocketsNorOfOldClientsWithoutOne) {
  const HttpServerOptions options;
  EXPECT_EQ(CheckGate(HeadWith("evil.example"), PeerKind::kNetwork, options, nullptr).refusal,
            HttpRefusal::kHostRefused);
  EXPECT_EQ(CheckGate(HeadWith("evil.example"), PeerKind::kUnix, options, nullptr).refusal,
            std::nullopt);
  RequestHead old = HeadWith("");
  old.http_1_1 = false;
  EXPECT_EQ(CheckGate(old, PeerKind::kNetwork, options, nullptr).refusal, std::nullopt);
  old.host = "evil.example";
  EXPECT_EQ(CheckGate(old, PeerKind::kNetwork, options, nullptr).refusal,
            HttpRefusal::kHostRefused);
}

TEST(RequestGate, PagesOfTheWebAreRefusedUnlessConfigured) {
  HttpServerOptions options;
  const auto decide = [&](std::vector<HttpHeader> headers) {
    return CheckGate(HeadWith("localhost", std::move(headers)), PeerKind::kNetwork, options,
                     nullptr);
  };
  for (const char* origin : {"https://evil.example", "null", "http://localhost:3000", ""})
    EXPECT_EQ(decide({{"Origin", origin}}).refusal, HttpRefusal::kOriginRefused) << origin;
  options.origins = {"https://chat.example"};
  EXPECT_EQ(decide({{"Origin", "https://chat.example"}}).refusal, std::nullopt);
  EXPECT_EQ(decide({{"Origin", "https://chat.example"}}).cors_origin, "https://chat.example");
  for (const char* origin : {"https://chat.example.evil", "http://chat.example",
                             "https://chat.example:8443", "https://CHAT.example"})
    EXPECT_EQ(decide({{"Origin", origin}}).refusal, HttpRefusal::kOriginRefused) << origin;
  EXPECT_EQ(decide({{"Origin", "https://chat.example"}, {"origin", "https://evil"}}).refusal,
            HttpRefusal::kOriginRefused);
  EXPECT_EQ(decide({}).cors_origin, "");
}

TEST(RequestGate, PreflightsNeedNoKeyButEverythingElseDoes) {
  HttpServerOptions options;
  options.origins = {"https://chat.example"};
  const MadeApiKey made = *MakeApiKey("alice", Random(1));
  const ApiKeys keys = *ApiKeys::Parse(made.line);
  RequestHead head = HeadWith(
      "localhost", {{"Origin", "https://chat.example"}, {"Access-Control-Request-Method", "POST"}});
  head.request.method = "OPTIONS";
  const GateDecision preflight = CheckGate(head, PeerKind::kNetwork, options, &keys);
  EXPECT_TRUE(preflight.preflight);
  EXPECT_EQ(preflight.refusal, std::nullopt);
  head.request.method = "POST";
  const GateDecision post = CheckGate(head, PeerKind::kNetwork, options, &keys);
  EXPECT_FALSE(post.preflight);
  EXPECT_EQ(post.refusal, HttpRefusal::kKeyMissing);
  EXPECT_EQ(post.cors_origin, "https://chat.example");  // the page may read why
}

TEST(RequestGate, KeysComeInEitherHeader) {
  const MadeApiKey alice = *MakeApiKey("alice", Random(1));
  const MadeApiKey bob = *MakeApiKey("bob", Random(2));
  const ApiKeys keys = *ApiKeys::Parse(alice.line + "\n" + bob.line);
  const HttpServerOptions options;
  const auto decide = [&](std::vector<HttpHeader> headers, std::string path = "/v1/x") {
    return CheckGate(HeadWith("localhost", std::move(headers), std::move(path)), PeerKind::kUnix,
                     options, &keys);
  };
  EXPECT_EQ(decide({{"Authorization", "Bearer " + alice.key}}).key_id, "alice");
  EXPECT_EQ(decide({{"authorization", "bearer   " + bob.key}}).key_id, "bob");
  EXPECT_EQ(decide({{"X-Api-Key", bob.key}}).key_id, "bob");
  EXPECT_EQ(decide({{"Authorization", "Basic abc"}, {"x-api-key", bob.key}}).key_id, "bob");
  EXPECT_EQ(decide({}).refusal, HttpRefusal::kKeyMissing);
  EXPECT_EQ(decide({{"Authorization", "Bearer "}}).refusal, HttpRefusal::kKeyMissing);
  EXPECT_EQ(decide({{"Authorization", alice.key}}).refusal, HttpRefusal::kKeyMissing);
  EXPECT_EQ(decide({{"Authorization", "Bearer " + alice.key + "0"}}).refusal,
            HttpRefusal::kKeyUnknown);
  EXPECT_EQ(decide({{"x-api-key", std::string(10'000, 'k')}}).refusal, HttpRefusal::kKeyUnknown);
  EXPECT_EQ(decide({}, "/health").refusal, std::nullopt);
  EXPECT_EQ(decide({}, "/health/x").refusal, HttpRefusal::kKeyMissing);
}

}  // namespace
}  // namespace hearth
