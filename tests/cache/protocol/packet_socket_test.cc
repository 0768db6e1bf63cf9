// Sockets: packets arrive whole with their descriptors; a path that is served is refused and a dead
// one is taken over; the waits end.
#include "cache/protocol/packet_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "cache/protocol/messages.h"
#include "cache/protocol/shared_memory.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Bytes(size_t count) { return std::vector<std::byte>(count, std::byte{7}); }

TEST(PacketSocket, PacketsArriveWholeAndInOrder) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_TRUE(*pair->first.Send(Bytes(3)));
  EXPECT_TRUE(*pair->first.Send(Bytes(kMessageBytesMax)));
  PacketBuffer packet;
  EXPECT_EQ(*pair->second.Receive(packet), Received::kPacket);
  EXPECT_EQ(packet.packet().size(), 3u);
  EXPECT_EQ(*pair->second.Receive(packet), Received::kPacket);
  EXPECT_EQ(packet.packet().size(), kMessageBytesMax);
  EXPECT_EQ(*pair->second.Receive(packet), Received::kNothing);
  pair->first.Close();
  EXPECT_EQ(*pair->second.Receive(packet), Received::kClosed);
  EXPECT_EQ(pair->second.Send(Bytes(3)).status().code(), absl::StatusCode::kUnavailable);
}

TEST(PacketSocket, FullIsSaidAndNothingIsSent) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok()) << pair.status();
  uint32_t sent = 0;
  while (*pair->first.Send(Bytes(10'000))) ++sent;
  EXPECT_GT(sent, 3u);
  PacketBuffer packet;
  for (uint32_t i = 0; i < sent; ++i) {
    ASSERT_EQ(*pair->second.Receive(packet), Received::kPacket);
    EXPECT_EQ(packet.packet().size(), 10'000u);
  }
  EXPECT_EQ(*pair->second.Receive(packet), Received::kNothing);
}

TEST(PacketSocket, TooLongAPacketIsRefused) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok()) << pair.status();
  ASSERT_TRUE(*pair->first.Send(Bytes(kMessageBytesMax + 1)));
  PacketBuffer packet;
  EXPECT_EQ(pair->second.Receive(packet).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PacketSocket, DescriptorsComeWithThePacketOrAreClosed) {
  absl::StatusOr<std::pair<PacketSocket, PacketSocket>> pair = PacketSocket::Pair();
  ASSERT_TRUE(pair.ok()) << pair.status();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const int passed[] = {writing.get()};
  ASSERT_TRUE(*pair->first.Send(Bytes(1), passed));
  ASSERT_TRUE(*pair->first.Send(Bytes(2), passed));
  writing = UniqueFd();
  PacketBuffer packet;
  std::vector<UniqueFd> fds;
  ASSERT_EQ(*pair->second.Receive(packet, &fds), Received::kPacket);
  ASSERT_EQ(fds.size(), 1u);
  EXPECT_EQ(::fcntl(fds[0].get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(*pair->second.Receive(packet), Received::kPacket) << "takes none: closed by the kernel";
  EXPECT_EQ(packet.packet().size(), 2u);
  fds.clear();
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 0) << "every copy of the writing end is closed";
}

TEST(ListeningSocket, IsForItsUserOnlyAndGoesWithItsOwner) {
  const FixtureDir dir;
  const std::string path = dir.File("socket");
  SteadyClock clock;
  {
    absl::StatusOr<ListeningSocket> listening = ListeningSocket::Listen(path);
    ASSERT_TRUE(listening.ok()) << listening.status();
    struct stat info;
    ASSERT_EQ(::lstat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_FALSE(listening->Accept()->valid());
    absl::StatusOr<PacketSocket> engine = PacketSocket::Connect(path, 0, clock);
    ASSERT_TRUE(engine.ok()) << engine.status();
    absl::StatusOr<PacketSocket> accepted = listening->Accept();
    ASSERT_TRUE(accepted.ok() && accepted->valid());
    EXPECT_EQ(accepted->Peer()->pid, ::getpid());
    EXPECT_EQ(accepted->Peer()->uid, ::geteuid());
    const UniqueFd process = accepted->OpenPeerProcess();
    ASSERT_TRUE(process.valid());
    pollfd p{.fd = process.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&p, 1, 0), 0) << "this process lives";
  }
  EXPECT_FALSE(FileExists(path));
}

TEST(ListeningSocket, ALiveOneIsRefusedAndADeadOneReplaced) {
  const FixtureDir dir;
  const std::string path = dir.File("socket");
  {
    absl::StatusOr<ListeningSocket> first = ListeningSocket::Listen(path);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status second = ListeningSocket::Listen(path).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(second.message(), HasSubstr(path));
    EXPECT_TRUE(FileExists(path)) << "the refused one must not remove the file";
  }
  {  // A program that died: its socket file is there, and nobody listens.
    const UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(FileExists(path));
  EXPECT_TRUE(ListeningSocket::Listen(path).ok());
}

TEST(ListeningSocket, AFileThatIsNoSocketStays) {
  const FixtureDir dir;
  const std::string path = dir.File("precious");
  WriteFixtureFile(path, "data");
  EXPECT_EQ(ListeningSocket::Listen(path).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadFixtureFile(path), "data");
}

TEST(ListeningSocket, ATooLongPathIsExplained) {
  const std::string path = "/tmp/" + std::string(120, 'a');
  EXPECT_THAT(ListeningSocket::Listen(path).status().message(), HasSubstr("choose a shorter one"));
  SteadyClock clock;
  EXPECT_EQ(PacketSocket::Connect(path, 0, clock).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ListeningSocket, AnInheritedOneIsServedAndLeftToItsMaker) {
  const FixtureDir dir;
  const std::string path = dir.File("socket");
  absl::StatusOr<ListeningSocket> made = ListeningSocket::Listen(path);
  ASSERT_TRUE(made.ok()) << made.status();
  SteadyClock clock;
  {
    absl::StatusOr<ListeningSocket> adopted =
        ListeningSocket::Adopt(UniqueFd(::dup(made->fd())), path);
    ASSERT_TRUE(adopted.ok()) << adopted.status();
    const absl::StatusOr<PacketSocket> client = PacketSocket::Connect(path, 0, clock);
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE(adopted->Accept()->valid());
    EXPECT_FALSE(adopted->Accept()->valid());  // does not wait
  }
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

TEST(ListeningSocket, WhatIsNoListeningPacketSocketIsNotAdopted) {
  const int unbound = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
  const int stream = ::socket(AF_UNIX, SOCK_STREAM, 0);
  for (const int fd : {unbound, stream, ::open("/dev/null", O_RDONLY), 9999}) {
    const absl::Status status = ListeningSocket::Adopt(UniqueFd(fd), "/run/x").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("ListenSequentialPacket="));
  }
}

TEST(PacketSocket, ConnectingWhereNobodyListensEndsInTime) {
  const FixtureDir dir;
  SteadyClock clock;
  const absl::Status status = PacketSocket::Connect(dir.File("none"), 50'000'000, clock).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no hearthd answers there"));
}

TEST(PollTimeout, IsRoundedUpAndNeverNegative) {
  EXPECT_EQ(PollTimeoutMs(1'000'001, 0), 2);
  EXPECT_EQ(PollTimeoutMs(0, 5), 0);
  EXPECT_EQ(PollTimeoutMs(INT64_MAX, 0), INT32_MAX);
}

TEST(SharedMemory, EnginesCanReadAndNothingElse) {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("test", 8192, SharedWriting::kGivesBack);
  ASSERT_TRUE(memory.ok()) << memory.status();
  memory->data()[4096] = std::byte{5};
  const int fd = memory->shared_fd();
  absl::StatusOr<FileMapping> mapped = MapShared(fd, 8192, MapAccess::kRead, "arena");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(mapped->data()[4096], std::byte{5});
  EXPECT_FALSE(MapShared(fd, 8192, MapAccess::kReadWrite, "arena").ok());
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::write(fd, "x", 1), 1);
}

TEST(SharedMemory, SealedAgainstEverybodyItIsStillTheMakersToWrite) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 4096, SharedWriting::kNobody);
  ASSERT_TRUE(memory.ok()) << memory.status();
  memory->data()[1] = std::byte{6};
  absl::StatusOr<FileMapping> mapped =
      MapShared(memory->shared_fd(), 4096, MapAccess::kRead, "directory");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(mapped->data()[1], std::byte{6});
  // Not even through a descriptor opened anew, by root.
  const std::string path = "/proc/self/fd/" + std::to_string(memory->shared_fd());
  const UniqueFd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (again.valid()) {
    EXPECT_FALSE(FileMapping::Map(again.get(), 4096, MapAccess::kReadWrite).ok());
    EXPECT_NE(::ftruncate(again.get(), 0), 0);
  }
}

TEST(SharedMemory, AHazardPageIsWrittenByBothAndKeepsItsLength) {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("test", 4096, SharedWriting::kEverybody);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const int fd = memory->shared_fd();
  absl::StatusOr<FileMapping> mapped = MapShared(fd, 4096, MapAccess::kReadWrite, "page");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  mapped->data()[9] = std::byte{1};
  EXPECT_EQ(memory->data()[9], std::byte{1});
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, 8192), 0);
}

TEST(SharedMemory, WhatIsNotSealedOrOfAnotherLengthIsRefused) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 4096, SharedWriting::kNobody);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_THAT(MapShared(memory->shared_fd(), 8192, MapAccess::kRead, "arena").status().message(),
              HasSubstr("announced 8192 bytes and passed 4096"));
  const FixtureDir dir;
  WriteFixtureFile(dir.File("plain"), std::string(4096, 'x'));
  const UniqueFd plain(::open(dir.File("plain").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(MapShared(plain.get(), 4096, MapAccess::kRead, "arena").status().message(),
              HasSubstr("not sealed"));
}

}  // namespace
}  // namespace hearth
