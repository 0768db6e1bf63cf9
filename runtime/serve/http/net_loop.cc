// See net_loop.h.
#include "runtime/serve/http/net_loop.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Executor = asio::any_io_executor;
using Socket = asio::generic::stream_protocol::socket;
using TlsSocket = asio::ssl::stream<Socket>;

constexpr std::chrono::milliseconds kAcceptPause(100);

// Lives as long as any stream: a writer may hold the last reference to a connection.
struct LoopContext {
  explicit LoopContext(uint32_t thread_count) : io(static_cast<int>(thread_count)) {}
  std::unique_ptr<asio::ssl::context> tls;  // null: plain
  asio::io_context io;
};

StreamEnd EndOf(const error_code& error) {
  if (!error) return StreamEnd::kNone;
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated)
    return StreamEnd::kEnd;
  return StreamEnd::kError;
}

template <class Channel>
class AsioStream final : public ByteStream {
 public:
  template <class... ChannelArgs>
  AsioStream(std::shared_ptr<LoopContext> context, Executor strand, ChannelArgs&&... args)
      : context_(std::move(context)),
        strand_(std::move(strand)),
        channel_(std::forward<ChannelArgs>(args)...),
        timer_(strand_) {}

  void Post(std::function<void()> task) override { asio::post(strand_, std::move(task)); }

  void Start(StreamUserRef user) override {
    if constexpr (std::is_same_v<Channel, TlsSocket>) {
      channel_.async_handshake(
          asio::ssl::stream_base::server,
          [user = std::move(user)](const error_code& error) { user->OnReady(!error); });
    } else {
      asio::post(strand_, [user = std::move(user)] { user->OnReady(true); });
    }
  }
  void ReadSome(StreamUserRef user, std::span<char> into) override {
    channel_.async_read_some(asio::buffer(into.data(), into.size()),
                             [user = std::move(user)](const error_code& error, size_t bytes) {
                               user->OnRead(bytes, EndOf(error));
                             });
  }
  void WriteSome(StreamUserRef user, std::string_view bytes) override {
    channel_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                              [user = std::move(user)](const error_code& error, size_t written) {
                                user->OnWritten(written, !error);
                              });
  }
  void SetTimer(StreamUserRef user, int64_t after_ns) override {
    timer_.expires_after(std::chrono::nanoseconds(after_ns));
    timer_.async_wait([user = std::move(user)](const error_code& error) {
      if (!error) user->OnTimer();
    });
  }
  void ShutdownSend(StreamUserRef user) override {
    if constexpr (std::is_same_v<Channel, TlsSocket>) {
      channel_.async_shutdown([user = std::move(user), this](const error_code&) {
        error_code ignored;
        channel_.lowest_layer().shutdown(Socket::shutdown_send, ignored);
      });
    } else {
      error_code ignored;
      channel_.shutdown(Socket::shutdown_send, ignored);
    }
  }
  void Close() override {
    error_code ignored;
    timer_.cancel();
    channel_.lowest_layer().close(ignored);
  }

 private:
  const std::shared_ptr<LoopContext> context_;
  const Executor strand_;
  Channel channel_;
  asio::steady_timer timer_;
};

PeerName NameOfPeer(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
    return {.kind = PeerKind::kNetwork, .name = text.data()};
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in6{};
    std::memcpy(&in6, &address, sizeof in6);
    inet_ntop(AF_INET6, &in6.sin6_addr, text.data(), text.size());
    return {.kind = PeerKind::kNetwork, .name = text.data()};
  }
  ucred peer{};
  length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return {.kind = PeerKind::kUnix, .name = "unix"};
  return {.kind = PeerKind::kUnix, .name = absl::StrCat("unix:", peer.uid)};
}

// Pieces leave at once, and a peer that vanished without a word is noticed within two minutes even
// while nothing is written to it.
void TuneTcp(int fd) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

absl::Status TlsError(const std::string& what, const error_code& error) {
  return absl::FailedPreconditionError(absl::StrCat("TLS: ", what, ": ", error.message()));
}

int SelectHttp11(SSL*, const unsigned char** out, unsigned char* out_length,
                 const unsigned char* in, unsigned int in_length, void*) {
  constexpr std::string_view kName = "http/1.1";
  for (unsigned int i = 0; i < in_length && i + 1 + in[i] <= in_length; i += 1 + in[i]) {
    const auto* name = reinterpret_cast<const char*>(in + i + 1);
    if (std::string_view(name, in[i]) != kName) continue;
    *out = in + i + 1;
    *out_length = in[i];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

absl::StatusOr<std::unique_ptr<asio::ssl::context>> MakeTls(const TlsOptions& options) {
  std::unique_ptr<asio::ssl::context> tls;
  try {
    tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  } catch (const boost::system::system_error& error) {
    return TlsError("start", error.code());
  }
  SSL_CTX* native = tls->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(
      native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(native, SelectHttp11, nullptr);
  error_code error;
  tls->use_certificate_chain_file(options.certificate_path, error);
  if (error) return TlsError("certificate file " + options.certificate_path, error);
  tls->use_private_key_file(options.key_path, asio::ssl::context::pem, error);
  if (error)
    return TlsError("key file " + options.key_path + ", which must fit the certificate", error);
  return tls;
}

class AsioLoop final : public NetLoop {
 public:
  AsioLoop(std::shared_ptr<LoopContext> context, HttpListener listening, uint32_t thread_count)
      : context_(std::move(context)),
        listening_(std::move(listening)),
        thread_count_(thread_count),
        strand_(asio::make_strand(context_->io)),
        acceptor_(strand_),
        pause_(strand_),
        work_(asio::make_work_guard(context_->io)) {}
  ~AsioLoop() override {
    StopAccepting();
    Join();
  }

  absl::Status Assign() {
    const int owned = fcntl(listening_.fd.get(), F_DUPFD_CLOEXEC, 0);  // the acceptor's own
    if (owned < 0) return ErrnoStatus(errno, "listening socket");
    listening_.fd = UniqueFd();
    error_code error;
    acceptor_.assign(asio::generic::stream_protocol(listening_.family, 0), owned, error);
    if (!error) return absl::OkStatus();
    listening_.fd = UniqueFd(owned);
    return ErrnoStatus(error.value(), "listening socket");
  }

  void Start(Events events) override {
    events_ = std::move(events);
    asio::post(strand_, [this] { Accept(); });
    for (uint32_t i = 0; i < thread_count_; ++i)
      threads_.emplace_back([context = context_] { context->io.run(); });
  }

  void StopAccepting() override {
    if (threads_.empty()) {
      CloseAcceptor();
      return;
    }
    std::promise<void> closed;
    asio::post(strand_, [&] {
      CloseAcceptor();
      closed.set_value();
    });
    closed.get_future().wait();
  }

  void Join() override {
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void CloseAcceptor() {
    error_code ignored;
    stopped_ = true;
    acceptor_.close(ignored);
    pause_.cancel();
  }

  void Accept() {
    if (stopped_) return;
    Executor strand = asio::make_strand(context_->io);
    acceptor_.async_accept(strand, [this, strand](const error_code& error, Socket socket) {
      if (stopped_) return;
      if (!error) {
        Take(strand, std::move(socket));
      } else if (error == asio::error::no_descriptors || error == asio::error::no_memory ||
                 error == asio::error::no_buffer_space || error.value() == ENFILE) {
        events_.paused();
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const error_code&) { Accept(); });
        return;
      }
      Accept();
    });
  }

  void Take(const Executor& strand, Socket socket) {
    PeerName peer = NameOfPeer(socket.native_handle());
    if (peer.name.empty()) return;  // gone before it was here
    if (peer.kind == PeerKind::kNetwork) TuneTcp(socket.native_handle());
    std::unique_ptr<ByteStream> stream;
    if (context_->tls != nullptr) {
      stream = std::make_unique<AsioStream<TlsSocket>>(context_, strand, std::move(socket),
                                                       *context_->tls);
    } else {
      stream = std::make_unique<AsioStream<Socket>>(context_, strand, std::move(socket));
    }
    events_.accepted(std::move(stream), std::move(peer));
  }

  const std::shared_ptr<LoopContext> context_;
  HttpListener listening_;
  const uint32_t thread_count_;
  Executor strand_;
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor_;
  asio::steady_timer pause_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  bool stopped_ = false;
  Events events_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NetLoop>> NetLoop::Create(HttpListener socket, const TlsOptions& tls,
                                                         uint32_t thread_count) {
  auto context = std::make_shared<LoopContext>(thread_count);
  if (!tls.certificate_path.empty()) {
    HEARTH_ASSIGN_OR_RETURN(context->tls, MakeTls(tls));
  }
  auto loop = std::make_unique<AsioLoop>(std::move(context), std::move(socket), thread_count);
  HEARTH_RETURN_IF_ERROR(loop->Assign());
  return loop;
}

}  // namespace hearth
