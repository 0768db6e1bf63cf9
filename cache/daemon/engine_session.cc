#include "cache/daemon/engine_session.h"

#include <poll.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

WireCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return WireCode::kBusy;
    default:
      return WireCode::kReadFailed;
  }
}

}  // namespace

EngineSession::EngineSession(PacketSocket socket, uint32_t number, PeerCredentials peer,
                             int64_t since_ns)
    : number_(number),
      peer_(peer),
      since_ns_(since_ns),
      process_(socket.OpenPeerProcess()),
      socket_(std::move(socket)) {}

absl::Status EngineSession::Welcome(const HelloMessage& hello, WelcomeMessage welcome,
                                    uint64_t request, int arena_fd, int directory_fd) {
  name_ = hello.name;
  HEARTH_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("hearthd hazard page", HazardPage::BytesFor(kHazardCount),
                           SharedWriting::kEverybody));
  page_memory_.emplace(std::move(memory));
  page_ = HazardPage::Format(page_memory_->data(), kHazardCount);
  welcome.hazard_count = kHazardCount;
  welcome.session = number_;
  const int fds[] = {arena_fd, directory_fd, page_memory_->shared_fd()};
  const std::lock_guard lock(mutex_);
  fetches_.resize(kHazardCount);
  HEARTH_ASSIGN_OR_RETURN(const bool sent, socket_.Send(Encode(welcome, request), fds));
  if (!sent) return absl::UnavailableError("the engine does not read its socket");
  return absl::OkStatus();
}

bool EngineSession::process_ended() const {
  if (!process_.valid()) return false;
  pollfd p{.fd = process_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, 0) > 0;
}

void EngineSession::Disconnect() {
  const std::lock_guard lock(mutex_);
  socket_.Close();
  outbox_.clear();
  outbox_bytes_ = 0;
}

absl::StatusOr<EngineSession::Fetch*> EngineSession::BeginFetch(uint32_t hazard, ExpertKey key,
                                                                uint64_t request) {
  const std::lock_guard lock(mutex_);
  if (hazard >= fetches_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("FETCH: hazard word ", hazard, ", there are ", fetches_.size()));
  }
  Fetch& fetch = fetches_[hazard];
  if (fetch.waits) {
    return absl::InvalidArgumentError(
        absl::StrCat("FETCH: hazard word ", hazard, " waits for another read already"));
  }
  fetch = {.session = this, .hazard = hazard, .key = key, .request = request, .waits = true};
  ++pending_count_;
  return &fetch;
}

bool EngineSession::Arrive(Fetch& fetch, const absl::StatusOr<BlockId>& block,
                           std::span<const std::byte> bytes, SharedLeases& leases) {
  const std::lock_guard lock(mutex_);
  fetch.waits = false;
  --pending_count_;
  ArrivedMessage message;
  message.entries.push_back({.hazard = fetch.hazard});
  if (block.ok()) {
    const ArenaPlace place = leases.Publish(*block, fetch.key, bytes);
    if (!socket_.valid()) return false;  // nobody would let go of it
    // Before the answer, and while the caller still holds the block: the lease has no gap.
    page_->Hold(fetch.hazard, place);
    message.entries[0].arena_page = place.page;
  } else {
    message.entries[0].code = CodeOf(block.status());
    message.text = std::string(block.status().message());
  }
  SendLocked(Encode(message, fetch.request));
  return !outbox_.empty();
}

uint32_t EngineSession::pending_count() const {
  const std::lock_guard lock(mutex_);
  return pending_count_;
}

void EngineSession::Send(std::vector<std::byte> packet) {
  const std::lock_guard lock(mutex_);
  SendLocked(std::move(packet));
}

void EngineSession::SendLocked(std::vector<std::byte> packet) {
  if (!socket_.valid() || overflowed_) return;
  if (outbox_.empty()) {
    const absl::StatusOr<bool> sent = socket_.Send(packet);
    if (!sent.ok() || *sent) return;  // a dead peer is found when its socket is read
  }
  outbox_bytes_ += packet.size();
  outbox_.push_back(std::move(packet));
  overflowed_ = outbox_bytes_ > kOutboxBytesMax || outbox_.size() > kOutboxPacketsMax;
}

bool EngineSession::Flush() {
  const std::lock_guard lock(mutex_);
  while (socket_.valid() && !outbox_.empty()) {
    const absl::StatusOr<bool> sent = socket_.Send(outbox_.front());
    if (sent.ok() && !*sent) return true;
    outbox_bytes_ -= outbox_.front().size();
    outbox_.pop_front();
  }
  return false;
}

bool EngineSession::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

}  // namespace hearth
