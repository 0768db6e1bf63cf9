// Sessions as raw packets: who is let in, what is refused, and that the daemon outlives whatever an
// engine says or does.
#include "cache/daemon/daemon.h"
#include "cache/daemon/engine_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cache/protocol/messages.h"
#include "runtime/base/prng.h"
#include "tests/cache/daemon/daemon_fixture.h"
#include "tests/cache/protocol/sample_messages.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// An engine that says whatever the test wants.
class RawEngine {
 public:
  RawEngine(const std::string& path, Clock& clock) {
    absl::StatusOr<PacketSocket> socket = PacketSocket::Connect(path, 5'000'000'000, clock);
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (socket.ok()) socket_ = *std::move(socket);
  }
  // As every engine does before it goes: nothing is leased any more.
  ~RawEngine() {
    if (!page_.data().empty()) HazardPage::Attach(page_.data(), kHazardCount)->Close();
  }
  void Say(std::span<const std::byte> packet) {
    ASSERT_TRUE(Eventually([&] {
      const absl::StatusOr<bool> sent = socket_.Send(packet);
      return !sent.ok() || *sent;
    }));
  }
  // The next packet; false when the daemon has closed.
  bool Hear() {
    Received received = Received::kNothing;
    EXPECT_TRUE(Eventually([&] {
      const absl::StatusOr<Received> r = socket_.Receive(buffer_, &fds_);
      received = r.ok() ? *r : Received::kClosed;
      return received != Received::kNothing;
    }));
    return received == Received::kPacket;
  }
  Frame HearFrame() {
    EXPECT_TRUE(Hear());
    const absl::StatusOr<Frame> frame = DecodeFrame(buffer_.packet());
    EXPECT_TRUE(frame.ok()) << frame.status();
    return frame.ok() ? *frame : Frame();
  }
  // The next packet is an ERROR, and then the daemon closes.
  ErrorMessage HearEnd() {
    const Frame frame = HearFrame();
    EXPECT_EQ(frame.type, MessageType::kError);
    const absl::StatusOr<ErrorMessage> error = DecodeError(frame.payload);
    EXPECT_FALSE(Hear());
    return error.ok() ? *error : ErrorMessage();
  }
  void Greet(const PackIdentity& pack) {
    Say(Encode(HelloMessage{pack, "raw"}, 1));
    EXPECT_EQ(HearFrame().type, MessageType::kWelcome);
    ASSERT_EQ(fds_.size(), 3u);
    page_ = *MapShared(fds_[2].get(), HazardPage::BytesFor(kHazardCount), MapAccess::kReadWrite,
                       "page");
  }
  PacketSocket& socket() { return socket_; }

 private:
  PacketSocket socket_;
  PacketBuffer buffer_;
  std::vector<UniqueFd> fds_;
  FileMapping page_;
};

class SessionsTest : public ::testing::Test {
 protected:
  PackIdentity Pack() const { return *PackIdentityOf(TestManifest(), store_.file()); }
  // The daemon is alive and right: a well-behaved engine gets an expert.
  void ExpectServes() {
    const auto remote = ConnectTo(socket_, store_, clock_);
    ASSERT_TRUE(remote.ok()) << remote.status();
    const absl::StatusOr<ExpertLease> lease = (*remote)->Acquire(Key(0, 3));
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_TRUE(store_.Equal(Key(0, 3), lease->bytes()));
  }

  StoreFixture store_{kDaemonShape};
  FixtureDir dir_;
  std::string socket_ = dir_.File("hearthd");
  SteadyClock clock_;
};

TEST_F(SessionsTest, AnotherVersionIsToldBothNumbers) {
  DaemonThread daemon(store_, socket_);
  RawEngine engine(socket_, clock_);
  std::vector<std::byte> hello = Encode(HelloMessage{Pack(), "later"}, 1);
  hello[4] = std::byte{9};
  engine.Say(hello);
  const ErrorMessage error = engine.HearEnd();
  EXPECT_EQ(error.code, WireCode::kVersion);
  EXPECT_THAT(error.text, HasSubstr("version 9, this hearthd speaks 1"));
  ExpectServes();
}

TEST_F(SessionsTest, AnotherPackIsToldBoth) {
  DaemonThread daemon(store_, socket_);
  for (int field = 0; field < 5; ++field) {
    PackIdentity pack = Pack();
    if (field == 0) ++pack.file_bytes;
    if (field == 1) pack.manifest_hash[3] ^= 1;
    if (field == 2) ++pack.directory_crc32c;
    if (field == 3) ++pack.layer_count;
    if (field == 4) ++pack.expert_count;
    RawEngine engine(socket_, clock_);
    engine.Say(Encode(HelloMessage{pack, "raw"}, 1));
    const ErrorMessage error = engine.HearEnd();
    EXPECT_EQ(error.code, WireCode::kWrongPack) << field;
    EXPECT_THAT(error.text, HasSubstr(store_.path()));
  }
  ExpectServes();
}

TEST_F(SessionsTest, NothingIsServedBeforeHello) {
  DaemonThread daemon(store_, socket_);
  for (const std::vector<std::byte>& packet : SamplePackets()) {
    if (DecodeFrame(packet)->type == MessageType::kHello) continue;
    RawEngine engine(socket_, clock_);
    engine.Say(packet);
    const ErrorMessage error = engine.HearEnd();
    EXPECT_EQ(error.code, WireCode::kMalformed);
    EXPECT_THAT(error.text, HasSubstr("before HELLO"));
  }
  ExpectServes();
}

TEST_F(SessionsTest, ASecondHelloEndsTheSession) {
  DaemonThread daemon(store_, socket_);
  RawEngine engine(socket_, clock_);
  engine.Greet(Pack());
  engine.Say(Encode(HelloMessage{Pack(), "raw"}, 2));
  EXPECT_THAT(engine.HearEnd().text, HasSubstr("second HELLO"));
}

TEST_F(SessionsTest, WhatTheDaemonSaysIsNotForEngines) {
  DaemonThread daemon(store_, socket_);
  for (const std::vector<std::byte>& packet :
       {Encode(SampleWelcome(), 1), Encode(SampleArrived(), 1), Encode(SampleError(), 1),
        EncodeEmpty(static_cast<MessageType>(77), 1)}) {
    RawEngine engine(socket_, clock_);
    engine.Greet(Pack());
    engine.Say(packet);
    EXPECT_THAT(engine.HearEnd().text, HasSubstr("an engine does not say"));
  }
  ExpectServes();
}

TEST_F(SessionsTest, ExpertsThatThePackDoesNotHaveAreRefused) {
  DaemonThread daemon(store_, socket_);
  const uint32_t layers = store_.file().layer_count(), experts = store_.file().expert_count();
  const std::vector<float> values(2, 1.0f);
  for (const std::vector<std::byte>& packet :
       {Encode(FetchMessage{LayerId(layers), {{ExpertId(0), 0}}}, 2),
        Encode(FetchMessage{LayerId(0), {{ExpertId(experts), 0}}}, 2),
        Encode(LookAheadMessage{LayerId(0), {ExpertId(experts)}}, 0),
        Encode(TrafficMessage{true, 1, {{LayerId(layers), 0, {}}}}, 0),
        Encode(TrafficMessage{true, 1, {{LayerId(0), 0, {{static_cast<uint16_t>(experts), 1}}}}},
               0),
        Encode(HeldMessage{{{{LayerId(0), ExpertId(experts)}, true}}}, 0),
        Encode(HeatAskMessage{LayerId(0), experts - 1, 2}, 3),
        Encode(MessageType::kSeed, HeatMessage{LayerId(0), experts - 1, values}, 0)}) {
    RawEngine engine(socket_, clock_);
    engine.Greet(Pack());
    engine.Say(packet);
    const ErrorMessage error = engine.HearEnd();
    EXPECT_EQ(error.code, WireCode::kMalformed);
    EXPECT_THAT(error.text, HasSubstr("the pack has"));
  }
  ExpectServes();
}

TEST_F(SessionsTest, HazardWordsAreCheckedAndUsedOnceAtATime) {
  DaemonThread daemon(store_, socket_);
  {
    RawEngine engine(socket_, clock_);
    engine.Greet(Pack());
    engine.Say(Encode(FetchMessage{LayerId(0), {{ExpertId(0), kHazardCount}}}, 2));
    EXPECT_THAT(engine.HearEnd().text, HasSubstr("hazard word 2048, there are 2048"));
  }
  {
    RawEngine engine(socket_, clock_);
    engine.Greet(Pack());
    // Many at once under one word: the second is refused unless the first has arrived already, as
    // all may on a machine that is busy with other things. Then the next experts are asked for.
    const uint32_t layers = store_.file().layer_count(), experts = store_.file().expert_count();
    Frame frame{.type = MessageType::kArrived};
    for (uint32_t at = 0; at + 8 <= layers * experts && frame.type == MessageType::kArrived;
         at += 8) {
      FetchMessage fetch{LayerId(at / experts), {}};
      for (uint32_t e = 0; e < 8; ++e) fetch.entries.push_back({ExpertId((at + e) % experts), 5});
      engine.Say(Encode(fetch, 2 + at));
      uint32_t arrived = 0;
      do {
        frame = engine.HearFrame();
      } while (frame.type == MessageType::kArrived && ++arrived < 8);
    }
    ASSERT_EQ(frame.type, MessageType::kError);
    EXPECT_THAT(DecodeError(frame.payload)->text, HasSubstr("waits for another read already"));
  }
  ExpectServes();
}

TEST_F(SessionsTest, GarbageEndsTheSessionAndNothingElse) {
  DaemonThread daemon(store_, socket_);
  Prng prng(7);
  const auto bystander = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(bystander.ok()) << bystander.status();
  for (int i = 0; i < 60; ++i) {
    RawEngine engine(socket_, clock_);
    if (i % 2 == 0) engine.Greet(Pack());
    std::vector<std::byte> packet(1 + prng.Below(i % 5 == 0 ? kMessageBytesMax : 200));
    for (std::byte& b : packet) b = static_cast<std::byte>(prng.Next());
    engine.Say(packet);
    EXPECT_EQ(engine.HearEnd().code, WireCode::kMalformed);
  }
  RawEngine oversized(socket_, clock_);
  oversized.Say(std::vector<std::byte>(kMessageBytesMax + 1));
  EXPECT_THAT(oversized.HearEnd().text, HasSubstr("longer than 65536"));
  EXPECT_TRUE((*bystander)->connected());
  EXPECT_TRUE((*bystander)->Acquire(Key(1, 1)).ok());
}

// Each sample message with one byte changed, to a greeted session: refused or done, never fatal.
TEST_F(SessionsTest, DamagedMessagesDoNoHarm) {
  DaemonThread daemon(store_, socket_);
  Prng prng(8);
  auto engine = std::make_unique<RawEngine>(socket_, clock_);
  engine->Greet(Pack());
  for (int round = 0; round < 20; ++round) {
    for (std::vector<std::byte> packet : SamplePackets()) {
      packet[kFrameHeaderBytes / 2 + prng.Below(packet.size() - kFrameHeaderBytes / 2)] ^=
          static_cast<std::byte>(1 + prng.Below(255));
      const absl::StatusOr<bool> sent = engine->socket().Send(packet);
      if (sent.ok()) continue;
      engine = std::make_unique<RawEngine>(socket_, clock_);
      engine->Greet(Pack());
    }
  }
  ExpectServes();
}

TEST_F(SessionsTest, ASilentConnectionIsNotKept) {
  DaemonThread daemon(store_, socket_, {.greeting_wait_ns = 20'000'000});
  RawEngine engine(socket_, clock_);
  EXPECT_FALSE(engine.Hear());
  EXPECT_THAT(daemon.lines(), HasSubstr("did not say HELLO"));
  ExpectServes();
}

TEST_F(SessionsTest, TheSeventeenthSessionIsRefused) {
  DaemonThread daemon(store_, socket_);
  std::vector<std::unique_ptr<RawEngine>> engines;
  for (uint32_t i = 0; i < kSessionsMax; ++i) {
    engines.push_back(std::make_unique<RawEngine>(socket_, clock_));
    engines.back()->Greet(Pack());
  }
  RawEngine one_more(socket_, clock_);
  EXPECT_EQ(one_more.HearEnd().code, WireCode::kTooMany);
  engines.back()->Say(EncodeEmpty(MessageType::kGoodbye, 0));
  EXPECT_FALSE(engines.back()->Hear());
}

// An engine that asks and never listens: the daemon drops it and goes on.
TEST_F(SessionsTest, AnEngineThatDoesNotListenIsDropped) {
  DaemonThread daemon(store_, socket_);
  RawEngine deaf(socket_, clock_);
  deaf.Greet(Pack());
  const std::vector<std::byte> ask = Encode(HeatAskMessage{LayerId(0), 0, 16}, 3);
  ASSERT_TRUE(Eventually([&] {
    for (int i = 0; i < 500; ++i) {
      if (!deaf.socket().Send(ask).ok()) return true;
    }
    return daemon.lines().find("does not read its socket") != std::string::npos;
  }));
  // The socket closes before the daemon tells of it.
  EXPECT_TRUE(Eventually(
      [&] { return daemon.lines().find("does not read its socket") != std::string::npos; }));
  ExpectServes();
}

// A flood of traffic from one engine does not keep another from being served.
TEST_F(SessionsTest, AFloodOfTrafficKeepsNobodyWaiting) {
  DaemonThread daemon(store_, socket_);
  RawEngine flooding(socket_, clock_);
  flooding.Greet(Pack());
  TrafficMessage traffic{true, 1, {{LayerId(0), 0, {}}}};
  for (uint16_t e = 0; e < 16; ++e) traffic.layers[0].experts.push_back({e, 1});
  const std::vector<std::byte> packet = Encode(traffic, 0);
  const auto remote = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  for (const ExpertKey key : store_.keys()) {
    for (int i = 0; i < 100; ++i) (void)*flooding.socket().Send(packet);
    const absl::StatusOr<ExpertLease> lease = (*remote)->Acquire(key);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(store_.Equal(key, lease->bytes()));
  }
}

// An engine that is told less than it says: its own packets are dropped and counted.
TEST_F(SessionsTest, AnEngineDropsWhatTheSocketDoesNotTake) {
  absl::StatusOr<ListeningSocket> listening = ListeningSocket::Listen(socket_);
  ASSERT_TRUE(listening.ok()) << listening.status();
  // Stands in for a daemon that says WELCOME and then hears nothing.
  std::thread mute([&] {
    PacketSocket engine;
    ASSERT_TRUE(Eventually([&] {
      engine = *listening->Accept();
      return engine.valid();
    }));
    PacketBuffer buffer;
    ASSERT_TRUE(Eventually([&] { return *engine.Receive(buffer) == Received::kPacket; }));
    const auto arena = SharedMemory::Create("arena", 4096, SharedWriting::kGivesBack);
    const ResidentDirectory::Shape shape{store_.file().layer_count(), store_.file().expert_count()};
    const auto leases = SharedLeases::Create(shape, arena->data());
    const auto page =
        SharedMemory::Create("page", HazardPage::BytesFor(4), SharedWriting::kEverybody);
    HazardPage::Format(page->data(), 4);
    const int fds[] = {arena->shared_fd(), (*leases)->directory_memory().shared_fd(),
                       page->shared_fd()};
    ASSERT_TRUE(
        *engine.Send(Encode(WelcomeMessage{.pack = Pack(),
                                           .arena_bytes = 4096,
                                           .directory_bytes = ResidentDirectory::BytesFor(shape),
                                           .hazard_count = 4},
                            1),
                     fds));
    // Until the engine has gone.
    ASSERT_TRUE(Eventually([&] {
      pollfd p{.fd = engine.fd(), .events = 0, .revents = 0};
      return ::poll(&p, 1, 0) > 0;
    }));
  });
  {
    const auto remote = ConnectTo(socket_, store_, clock_);
    ASSERT_TRUE(remote.ok()) << remote.status();
    const std::vector<ExpertSighting> sightings = {{ExpertId(1), 1}};
    for (int i = 0; i < 5000; ++i) {
      (*remote)->Observe({LayerId(0), sightings, TrafficKind::kWindow});
      (*remote)->EndWindow(1);
    }
    EXPECT_GT((*remote)->dropped_message_count(), 1000u);
    // And what it has to have is read in process.
    const absl::StatusOr<ExpertLease> lease = (*remote)->Acquire(Key(0, 2));
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_TRUE(store_.Equal(Key(0, 2), lease->bytes()));
  }
  mute.join();
}

TEST_F(SessionsTest, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  // A child made before there are threads; it waits for the daemon and connects as nobody.
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ChildProcess stranger([&] {
    SteadyClock clock;
    if (::seteuid(65534) != 0) ::_exit(3);
    absl::StatusOr<PacketSocket> socket = absl::UnknownError("");
    if (!Eventually([&] {
          socket = PacketSocket::Connect(socket_, 0, clock);
          return socket.ok();
        })) {
      ::_exit(4);
    }
    PacketBuffer buffer;
    if (!Eventually([&] { return *socket->Receive(buffer) == Received::kPacket; })) ::_exit(5);
    const absl::StatusOr<Frame> frame = DecodeFrame(buffer.packet());
    if (!frame.ok() || frame->type != MessageType::kError) ::_exit(6);
    ::_exit(DecodeError(frame->payload)->code == WireCode::kNotAllowed ? 0 : 7);
  });
  DaemonThread daemon(store_, socket_);
  // The file's mode keeps strangers out by itself; lifted, the credentials still do.
  ASSERT_EQ(::chmod(socket_.c_str(), 0666), 0);
  EXPECT_EQ(stranger.Wait(), 0);
  EXPECT_THAT(daemon.lines(), HasSubstr("user 65534"));
  ExpectServes();
}

}  // namespace
}  // namespace hearth
