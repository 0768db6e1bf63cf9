// What the network and strangers do to a server: thousands of malformed requests, descriptors that
// run out, TLS with everything wrong about it. It answers or closes, lives, and forgets.
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/prng.h"
#include "runtime/serve/http/server_state.h"
#include "tests/runtime/serve/http/http_client.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// AddressSanitizer keeps 256 MiB of freed memory back, ThreadSanitizer grows its own books.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kGrowthBytesMax = 1ull << 30;
#else
constexpr uint64_t kGrowthBytesMax = 32ull << 20;
#endif

uint64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// One of many shapes of a request with something wrong, or of nothing at all.
std::string Malformed(Prng& prng) {
  const std::vector<std::string> whole = {
      GetText("/"), PostText("0123456789"),
      "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\n"};
  std::string text = whole[prng.Below(whole.size())];
  switch (prng.Below(7)) {
    case 0:  // a byte changed
      text[prng.Below(text.size())] = static_cast<char>(prng.Next());
      return text;
    case 1:  // cut
      return text.substr(0, prng.Below(text.size()));
    case 2:  // bytes put in
      for (int i = 0; i < 8; ++i)
        text.insert(text.begin() + static_cast<ptrdiff_t>(prng.Below(text.size())),
                    static_cast<char>(prng.Next()));
      return text;
    case 3:  // nothing but noise
      text.assign(prng.Below(3000), ' ');
      for (char& c : text) c = static_cast<char>(prng.Next());
      return text;
    case 4:
      return "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\nabc";
    case 5:
      return PostText("0123456789", "Transfer-Encoding: chunked\r\n");
    default:
      return "GET /" + std::string(prng.Below(60'000), 'a') + " HTTP/1.1\r\n";
  }
}

TEST(ServerFaults, TenThousandMalformedRequestsLeaveNothingBehind) {
  TestServer server(Echo);
  constexpr int kThreads = 2;
  constexpr int kRequests = 10'000;
  std::atomic<int> answered = 0;
  uint64_t early_bytes = 0;
  const auto attack = [&](int first, int last) {
    for (int i = first; i < last; ++i) {
      Prng prng(static_cast<uint64_t>(i));
      Client client = server.Connect();
      if (!client.connected()) continue;
      client.Send(Malformed(prng));
      client.ShutdownSend();
      if (client.ReadUntilEnd() && client.rest().rfind("HTTP/1.1 ", 0) == 0) ++answered;
    }
  };
  attack(0, 1000);
  early_bytes = ResidentBytes();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back(attack, 1000 + t * (kRequests - 1000) / kThreads,
                         1000 + (t + 1) * (kRequests - 1000) / kThreads);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server.NoConnectionsLeft());
  EXPECT_GT(answered, kRequests / 3);
  const HttpServerStats stats = server.server->stats();
  EXPECT_EQ(stats.connections_accepted, static_cast<uint64_t>(kRequests));
  EXPECT_EQ(stats.body_bytes, 0u);
  EXPECT_EQ(stats.requests_running, 0u);
  EXPECT_LT(ResidentBytes(), early_bytes + kGrowthBytesMax);
  EXPECT_EQ(server.Connect().Ask(PostText("still here")).body, "POST still here");
}

TEST(ServerFaults, RefusalsReachClientsThatAreStillSending) {
  TestServer server(Echo, {.limits = {.body_bytes_max = 1000, .bodies_bytes_max = 1000}});
  for (int i = 0; i < 20; ++i) {
    Client client = server.Connect();
    std::thread sender([&] { client.Send(PostText(std::string(4 << 20, 'x'))); });
    const ClientReply reply = client.Read();
    EXPECT_EQ(reply.status, 413);
    EXPECT_THAT(reply.body, HasSubstr("body_too_large"));
    sender.join();
  }
}

TEST(ServerFaults, ManySilentConnectionsAreBounded) {
  TestServer server(Echo, {.limits = {.connections_max = 20}});
  std::vector<Client> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(server.Connect());
  ASSERT_TRUE(Eventually([&] { return server.server->stats().connections_accepted == 200; }));
  EXPECT_LE(server.server->stats().connections_open, 20u + ServerState::kRefusedMax);
  EXPECT_EQ(clients[0].Ask(GetText("/")).status, 200);
  EXPECT_EQ(clients[25].Ask(GetText("/")).status, 503);
  clients.clear();
  EXPECT_TRUE(server.NoConnectionsLeft());
}

TEST(ServerFaults, AcceptingGoesOnWhenDescriptorsComeBack) {
  TestServer server(Echo);
  Client before = server.Connect();
  ASSERT_EQ(before.Ask(GetText("/")).status, 200);
  Client waiting = Client::Tcp(1);  // holds a descriptor for the connect below
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<UniqueFd> hoard;
  {
    const rlimit low{.rlim_cur = 256, .rlim_max = limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (true) {
      UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!fd.valid()) break;
      hoard.push_back(std::move(fd));
    }
    hoard.pop_back();  // for the client's own end
    waiting = server.Connect();
  }
  EXPECT_TRUE(Eventually([&] { return server.server->stats().accept_pauses > 0; }));
  EXPECT_EQ(before.Ask(GetText("/")).status, 200);  // those who are in go on
  hoard.clear();
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(waiting.Ask(GetText("/")).status, 200);
}

// --- TLS.

struct FileCloser {
  void operator()(FILE* file) const { std::fclose(file); }
};

// A self-signed certificate for "localhost" in two files that last as long as this.
class Certificate {
 public:
  explicit Certificate(std::string_view name)
      : certificate_path(absl::StrCat(testing::TempDir(), "hearth_tls_", ::getpid(), "_",
                                      std::string(name), ".pem")),
        key_path(certificate_path + ".key") {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> x509(X509_new(), X509_free);
    X509_set_version(x509.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509.get()), 3600);
    X509_set_pubkey(x509.get(), key.get());
    X509_NAME* subject = X509_get_subject_name(x509.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x509.get(), subject);
    X509_sign(x509.get(), key.get(), EVP_sha256());
    const std::unique_ptr<FILE, FileCloser> certificate(std::fopen(certificate_path.c_str(), "w"));
    PEM_write_X509(certificate.get(), x509.get());
    const std::unique_ptr<FILE, FileCloser> key_file(std::fopen(key_path.c_str(), "w"));
    PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  ~Certificate() {
    unlink(certificate_path.c_str());
    unlink(key_path.c_str());
  }
  const std::string certificate_path;
  const std::string key_path;
};

class TlsClient {
 public:
  // OpenSSL's own sockets write without MSG_NOSIGNAL, unlike the server's.
  explicit TlsClient(uint16_t port, int version_max = 0)
      : socket_(Client::Tcp(port)), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    std::signal(SIGPIPE, SIG_IGN);
    if (version_max != 0) {
      SSL_CTX_set_min_proto_version(context_.get(), 0);
      SSL_CTX_set_max_proto_version(context_.get(), version_max);
      SSL_CTX_set_security_level(context_.get(), 0);
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_.fd());
    connected_ = SSL_connect(ssl_.get()) == 1;
  }
  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_.get()); }
  ClientReply Ask(std::string_view request) {
    SSL_write(ssl_.get(), request.data(), static_cast<int>(request.size()));
    ReplyReader reader;
    std::string bytes;
    char buffer[4096];
    while (!reader.Take(bytes, false)) {
      const int n = SSL_read(ssl_.get(), buffer, sizeof buffer);
      if (n <= 0) break;
      bytes.append(buffer, static_cast<size_t>(n));
    }
    return reader.reply();
  }
  bool ReadsCleanEnd() {
    char byte = 0;
    const int n = SSL_read(ssl_.get(), &byte, 1);
    return n == 0 && SSL_get_error(ssl_.get(), n) == SSL_ERROR_ZERO_RETURN;
  }
  void Shutdown() { SSL_shutdown(ssl_.get()); }
  Client& socket() { return socket_; }

 private:
  Client socket_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  bool connected_ = false;
};

TEST(ServerTls, AnswersStreamsAndEndsCleanly) {
  const Certificate certificate("good");
  TestServer server(
      [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
        writer->StartStream({});
        for (int i = 0; i < 100; ++i) writer->Write(request.body);
        writer->Finish();
      },
      {.tls = {.certificate_path = certificate.certificate_path,
               .key_path = certificate.key_path}});
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.server->port(), version);
    ASSERT_TRUE(client.connected());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(client.Ask(PostText(std::string(1000, 'x'))).body, std::string(100'000, 'x'));
    EXPECT_EQ(client.Ask(PostText("a", "Connection: close\r\n")).body, std::string(100, 'a'));
    EXPECT_TRUE(client.ReadsCleanEnd());
    client.Shutdown();
    client.socket().Close();
  }
  EXPECT_TRUE(server.NoConnectionsLeft());
}

TEST(ServerTls, OldVersionsPlainTextAndNoiseAreTurnedAway) {
  const Certificate certificate("strict");
  TestServer server(Echo, {.tls = {.certificate_path = certificate.certificate_path,
                                   .key_path = certificate.key_path},
                           .limits = {.head_timeout_ns = 300'000'000}});
  EXPECT_FALSE(TlsClient(server.server->port(), TLS1_1_VERSION).connected());
  Client plain = server.Connect();
  plain.Send(GetText("/"));
  plain.ReadUntilEnd();
  EXPECT_EQ(plain.Read().status, 0);
  Client silent = server.Connect();
  EXPECT_TRUE(silent.ReadUntilEnd());
  TlsClient good(server.server->port());
  EXPECT_EQ(good.Ask(GetText("/")).status, 200);
}

TEST(ServerTls, AClientThatLeavesInMidStreamIsNoticed) {
  const Certificate certificate("leaving");
  std::atomic<int> gone = 0;
  std::vector<std::shared_ptr<ResponseWriter>> waiting;
  TestServer server(
      [&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
        writer->OnGone([&] { ++gone; });
        waiting.push_back(std::move(writer));
      },
      {.tls = {.certificate_path = certificate.certificate_path,
               .key_path = certificate.key_path}});
  const std::string get = GetText("/");
  for (int i = 1; i <= 3; ++i) {
    TlsClient client(server.server->port());
    ASSERT_TRUE(client.connected());
    std::thread asking([&] { client.Ask(get); });
    ASSERT_TRUE(Eventually([&] { return server.server->stats().requests_running == 1; }));
    shutdown(client.socket().fd(), SHUT_RDWR);
    asking.join();
    EXPECT_TRUE(Eventually([&] { return gone == i; }));
  }
  EXPECT_TRUE(server.NoConnectionsLeft());
}

TEST(ServerTls, FilesThatDoNotFitAreNamed) {
  const Certificate one("one"), other("other");
  FunctionHandler handler(Echo);
  const auto status = [&](const std::string& certificate, const std::string& key) {
    return HttpServer::Create({.tls = {.certificate_path = certificate, .key_path = key}}, handler)
        .status();
  };
  EXPECT_TRUE(status(one.certificate_path, one.key_path).ok());
  for (const absl::Status& bad :
       {status(one.certificate_path, other.key_path), status("/nowhere", one.key_path),
        status(one.certificate_path, "/nowhere"), status(one.key_path, one.key_path)}) {
    EXPECT_EQ(bad.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(bad.message()), StartsWith("TLS: "));
  }
}

}  // namespace
}  // namespace hearth
