// Any sequence of messages from an engine to a daemon that serves: it answers or ends that session,
// and then still serves another engine. The codec alone is daemon_frame_fuzz.
//
// Input: one byte whether the engine greets first, then messages: a type, a length of two bytes
// and so many bytes of payload, or what is left.
#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/protocol/hazard_page.h"
#include "cache/protocol/messages.h"
#include "cache/protocol/packet_socket.h"
#include "cache/protocol/shared_memory.h"
#include "runtime/base/check.h"
#include "tests/cache/daemon/daemon_fixture.h"

namespace {

using hearth::Received;

constexpr uint32_t kInputsPerDaemon = 512;  // LOWER and SEED stay with a daemon
constexpr int kPatienceMs = 10'000;

// A small pack and a daemon that serves it, the next one after so many inputs.
class Served {
 public:
  hearth::PacketSocket Connect() {
    if (inputs_++ % kInputsPerDaemon == 0) {
      daemon_.reset();
      daemon_ = std::make_unique<hearth::DaemonThread>(store_, path_);
    }
    auto socket = hearth::PacketSocket::Connect(path_, 5'000'000'000, clock_);
    HEARTH_CHECK(socket.ok());
    return *std::move(socket);
  }
  hearth::PackIdentity pack() const {
    return *hearth::PackIdentityOf(hearth::TestManifest(), store_.file());
  }

 private:
  hearth::StoreFixture store_{hearth::kDaemonShape};
  hearth::FixtureDir dir_;
  const std::string path_ = dir_.File("socket");
  hearth::SteadyClock clock_;
  std::unique_ptr<hearth::DaemonThread> daemon_;
  uint32_t inputs_ = 0;
};

class Engine {
 public:
  explicit Engine(hearth::PacketSocket socket) : socket_(std::move(socket)) {}
  ~Engine() {  // nothing is leased any more: the daemon may forget the session
    if (!page_.data().empty())
      hearth::HazardPage::Attach(page_.data(), hearth::kHazardCount)->Close();
  }
  // False: the daemon has ended the session.
  bool Say(std::span<const std::byte> packet) {
    for (int i = 0; i < kPatienceMs; ++i) {
      const absl::StatusOr<bool> sent = socket_.Send(packet);
      if (!sent.ok()) return false;
      if (*sent) return true;
      if (!HearOne(0)) return false;
      poll(nullptr, 0, 1);
    }
    HEARTH_CHECK(false);  // a daemon that takes nothing any more
  }
  bool Greet(const hearth::PackIdentity& pack) {
    return Say(Encode(hearth::HelloMessage{pack, "fuzz"}, 1)) &&
           HearUntil(hearth::MessageType::kWelcome);
  }
  // Hears until a message of that type. False: the end came first.
  bool HearUntil(hearth::MessageType type) {
    while (HearOne(kPatienceMs)) {
      if (last_ == type) return true;
    }
    return false;
  }

 private:
  bool HearOne(int wait_ms) {
    pollfd ready{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    const int n = poll(&ready, 1, wait_ms);
    HEARTH_CHECK(n > 0 || wait_ms == 0);  // neither an answer nor an end
    if (n == 0) return true;
    std::vector<hearth::UniqueFd> fds;
    const absl::StatusOr<Received> received = socket_.Receive(buffer_, &fds);
    if (!received.ok() || *received == Received::kClosed) return false;
    if (*received == Received::kNothing) return true;
    const absl::StatusOr<hearth::Frame> frame = hearth::DecodeFrame(buffer_.packet());
    HEARTH_CHECK(frame.ok());
    last_ = frame->type;
    if (last_ != hearth::MessageType::kWelcome) return true;
    HEARTH_CHECK(fds.size() == 3);
    auto page = hearth::MapShared(fds[2].get(), hearth::HazardPage::BytesFor(hearth::kHazardCount),
                                  hearth::MapAccess::kReadWrite, "page");
    HEARTH_CHECK(page.ok());
    page_ = *std::move(page);
    return true;
  }
  hearth::PacketSocket socket_;
  hearth::PacketBuffer buffer_;
  hearth::MessageType last_ = hearth::MessageType::kError;
  hearth::FileMapping page_;
};

std::vector<std::byte> Packet(uint8_t type, std::span<const std::byte> payload) {
  std::vector<std::byte> packet =
      hearth::EncodeEmpty(static_cast<hearth::MessageType>(type % 22), 7);
  packet.insert(packet.end(), payload.begin(), payload.end());
  const auto length = static_cast<uint32_t>(packet.size());
  for (size_t i = 0; i < 4; ++i) packet[8 + i] = static_cast<std::byte>(length >> (8 * i));
  return packet;
}

void Talk(Engine& engine, std::span<const std::byte> input) {
  while (input.size() >= 3) {
    const auto type = static_cast<uint8_t>(input[0]);
    const size_t wanted = static_cast<size_t>(input[1]) | static_cast<size_t>(input[2]) << 8;
    input = input.subspan(3);
    const std::span<const std::byte> payload = input.first(std::min(wanted, input.size()));
    input = input.subspan(payload.size());
    if (!engine.Say(Packet(type, payload))) return;
  }
  if (engine.Say(hearth::EncodeEmpty(hearth::MessageType::kStatsAsk, 9)))
    (void)engine.HearUntil(hearth::MessageType::kStatsAre);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Served served;
  if (size == 0) return 0;
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size)).subspan(1);
  {
    Engine engine(served.Connect());
    if ((data[0] & 1) == 0 || engine.Greet(served.pack())) Talk(engine, input);
  }
  Engine other(served.Connect());
  HEARTH_CHECK(other.Greet(served.pack()));
  return 0;
}
