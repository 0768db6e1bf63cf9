#include "cache/store/remote_link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/protocol/shared_memory.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status RefusalOf(const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const ErrorMessage error, DecodeError(frame.payload));
  const std::string text = absl::StrCat("hearthd: ", error.text);
  switch (error.code) {
    case WireCode::kVersion:
    case WireCode::kWrongPack:
      return absl::FailedPreconditionError(text);
    case WireCode::kNotAllowed:
      return absl::PermissionDeniedError(text);
    case WireCode::kTooMany:
      return absl::ResourceExhaustedError(text);
    case WireCode::kShuttingDown:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

// Waits for one packet, with the descriptors it brings.
absl::Status ReceiveOne(PacketSocket& socket, int64_t deadline_ns, Clock& clock,
                        PacketBuffer& buffer, std::vector<UniqueFd>& fds) {
  for (;;) {
    HEARTH_ASSIGN_OR_RETURN(const Received received, socket.Receive(buffer, &fds));
    if (received == Received::kPacket) return absl::OkStatus();
    if (received == Received::kClosed) return absl::UnavailableError("hearthd closed the socket");
    const int64_t now_ns = clock.NowNs();
    if (now_ns >= deadline_ns) return absl::UnavailableError("hearthd does not answer HELLO");
    pollfd p{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    ::poll(&p, 1, PollTimeoutMs(deadline_ns, now_ns));
  }
}

absl::StatusOr<WelcomeMessage> ReadWelcome(const PacketBuffer& buffer, const PackIdentity& pack) {
  HEARTH_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(buffer.packet()));
  if (frame.version != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("hearthd speaks protocol version ", frame.version, ", this engine ",
                     kProtocolVersion, ": use engine and daemon of one release"));
  }
  if (frame.type == MessageType::kError) return RefusalOf(frame);
  if (frame.type != MessageType::kWelcome) {
    return absl::InternalError(
        absl::StrCat("hearthd answered HELLO with ", MessageTypeName(frame.type)));
  }
  HEARTH_ASSIGN_OR_RETURN(WelcomeMessage welcome, DecodeWelcome(frame.payload));
  if (!welcome.pack.SameBytesAs(pack)) {
    return absl::FailedPreconditionError(
        absl::StrCat("hearthd serves ", welcome.pack.path, ", which is not ", pack.path));
  }
  return welcome;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteLink>> RemoteLink::Connect(const PackIdentity& pack,
                                                                const LinkOptions& options,
                                                                Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(
      PacketSocket socket,
      PacketSocket::Connect(options.socket_path, options.connect_wait_ns, clock));
  HEARTH_ASSIGN_OR_RETURN(const bool sent,
                          socket.Send(Encode(HelloMessage{pack, options.name}, 1)));
  if (!sent) return absl::UnavailableError(absl::StrCat(options.socket_path, ": full"));
  PacketBuffer buffer;
  std::vector<UniqueFd> fds;
  const absl::Status answered =
      ReceiveOne(socket, clock.NowNs() + options.welcome_wait_ns, clock, buffer, fds);
  if (!answered.ok()) return Annotate(answered, options.socket_path);
  absl::StatusOr<WelcomeMessage> welcome = ReadWelcome(buffer, pack);
  if (!welcome.ok()) return Annotate(welcome.status(), options.socket_path);
  if (fds.size() != 3) {
    return absl::InternalError(
        absl::StrCat(options.socket_path, ": WELCOME came with ", fds.size(), " descriptors"));
  }
  if (welcome->hazard_count == 0 || welcome->hazard_count > (1u << 20)) {
    return absl::InternalError(
        absl::StrCat(options.socket_path, ": WELCOME: ", welcome->hazard_count, " hazard words"));
  }
  HEARTH_ASSIGN_OR_RETURN(FileMapping arena, MapShared(fds[0].get(), welcome->arena_bytes,
                                                       MapAccess::kRead, "arena of hearthd"));
  HEARTH_ASSIGN_OR_RETURN(
      FileMapping directory,
      MapShared(fds[1].get(), welcome->directory_bytes, MapAccess::kRead, "directory of hearthd"));
  HEARTH_ASSIGN_OR_RETURN(FileMapping page,
                          MapShared(fds[2].get(), HazardPage::BytesFor(welcome->hazard_count),
                                    MapAccess::kReadWrite, "hazard page of hearthd"));
  HEARTH_ASSIGN_OR_RETURN(
      const ResidentDirectory directory_view,
      ResidentDirectory::Attach(
          directory.data(), {.layer_count = pack.layer_count, .expert_count = pack.expert_count}));
  HEARTH_ASSIGN_OR_RETURN(const HazardPage hazards,
                          HazardPage::Attach(page.data(), welcome->hazard_count));
  return std::unique_ptr<RemoteLink>(new RemoteLink(std::move(socket), *std::move(welcome),
                                                    std::move(arena), std::move(directory),
                                                    std::move(page), directory_view, hazards));
}

RemoteLink::RemoteLink(PacketSocket socket, WelcomeMessage welcome, FileMapping arena,
                       FileMapping directory, FileMapping page, ResidentDirectory directory_view,
                       HazardPage hazards)
    : socket_(std::move(socket)),
      welcome_(std::move(welcome)),
      arena_(std::make_shared<const FileMapping>(std::move(arena))),
      directory_memory_(std::move(directory)),
      page_memory_(std::move(page)),
      directory_(directory_view),
      hazards_(hazards) {
  for (uint32_t word = hazards_.count(); word > 0; --word) free_.push_back(word - 1);
}

RemoteLink::~RemoteLink() { hazards_.Close(); }

std::optional<uint32_t> RemoteLink::TakeWord() {
  if (free_.empty()) return std::nullopt;
  const uint32_t word = free_.back();
  free_.pop_back();
  return word;
}

void RemoteLink::ReturnWord(uint32_t word) {
  hazards_.Drop(word);
  free_.push_back(word);
}

std::optional<std::span<const std::byte>> RemoteLink::TryHold(uint32_t word, ExpertKey key,
                                                              uint64_t blob_bytes) {
  const std::optional<ArenaPlace> place = hazards_.TryHold(word, key, directory_);
  if (!place.has_value()) return std::nullopt;
  std::optional<std::span<const std::byte>> bytes = BytesAt(place->page, blob_bytes);
  if (!bytes.has_value()) hazards_.Drop(word);
  return bytes;
}

std::optional<std::span<const std::byte>> RemoteLink::BytesAt(uint32_t page,
                                                              uint64_t blob_bytes) const {
  const uint64_t offset_bytes = uint64_t{page} * kArenaPageBytes;
  const std::span<const std::byte> arena = arena_->data();
  if (offset_bytes > arena.size() || blob_bytes > arena.size() - offset_bytes) return std::nullopt;
  return arena.subspan(offset_bytes, blob_bytes);
}

}  // namespace hearth
