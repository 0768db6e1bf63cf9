#include "cache/daemon/daemon.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kMessagesPerTurn = 64;  // of one engine, before the next one's
constexpr int64_t kTickNs = 1'000'000'000;
constexpr float kStateWeight = 0.5f;  // heat of the last run: yesterday's texts, not today's

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const DaemonOptions& options,
                                                       const BlocksMaker& make_blocks, Clock& clock,
                                                       Talk talk) {
  HEARTH_ASSIGN_OR_RETURN(
      ListeningSocket listening,
      options.inherited_fd < 0
          ? ListeningSocket::Listen(options.socket_path)
          : ListeningSocket::Adopt(UniqueFd(options.inherited_fd), options.socket_path));
  HEARTH_ASSIGN_OR_RETURN(
      SharedMemory arena,
      SharedMemory::Create("hearthd arena", options.arena_bytes, SharedWriting::kGivesBack));
  const ResidentDirectory::Shape shape{.layer_count = options.pack.layer_count,
                                       .expert_count = options.pack.expert_count};
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<SharedLeases> leases,
                          SharedLeases::Create(shape, arena.data()));
  std::unique_ptr<Daemon> daemon(new Daemon(options, clock, std::move(talk), std::move(listening),
                                            std::move(arena), std::move(leases)));
  if (!daemon->wake_.valid()) return ErrnoStatus(errno, "eventfd");
  SharedLeases& shared = *daemon->leases_;
  HEARTH_ASSIGN_OR_RETURN(daemon->blocks_,
                          make_blocks(daemon->arena_.data(), [&shared](BlockId block) {
                            return shared.HeldElsewhere(block);
                          }));
  if (const absl::Status status = daemon->LoadState(); !status.ok()) {
    daemon->talk_(absl::StrCat("the saved heat is not used: ", status.message()));
  }
  return daemon;
}

Daemon::Daemon(const DaemonOptions& options, Clock& clock, Talk talk, ListeningSocket listening,
               SharedMemory arena, std::unique_ptr<SharedLeases> leases)
    : options_(options),
      clock_(clock),
      talk_(std::move(talk)),
      listening_(std::move(listening)),
      arena_(std::move(arena)),
      leases_(std::move(leases)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      saved_ns_(clock.NowNs()),
      budget_bytes_(options.arena_bytes),
      held_count_(size_t{options.pack.layer_count} * options.pack.expert_count),
      told_held_(held_count_.size()) {}

Daemon::~Daemon() { StopFilling(); }

void Daemon::StopFilling() {
  if (!filler_.joinable()) return;
  blocks_->StopFilling();
  filler_.join();
}

absl::Status Daemon::LoadState() {
  if (options_.state_path.empty() || !FileExists(options_.state_path)) return absl::OkStatus();
  const HeatModelIdentity identity{options_.source_hash, options_.pack.layer_count,
                                   options_.pack.expert_count};
  HEARTH_ASSIGN_OR_RETURN(std::vector<float> heat, LoadHeat(options_.state_path, identity));
  for (float& value : heat) value *= kStateWeight;
  for (uint32_t l = 0; l < identity.layer_count; ++l) {
    blocks_->Seed(LayerId(l), std::span(heat).subspan(size_t{l} * identity.expert_count,
                                                      identity.expert_count));
  }
  return absl::OkStatus();
}

void Daemon::SaveState() {
  saved_ns_ = clock_.NowNs();
  if (options_.state_path.empty()) return;
  const HeatModelIdentity identity{options_.source_hash, options_.pack.layer_count,
                                   options_.pack.expert_count};
  std::vector<float> heat;
  heat.reserve(held_count_.size());
  for (uint32_t l = 0; l < identity.layer_count; ++l) {
    for (uint32_t e = 0; e < identity.expert_count; ++e) {
      heat.push_back(blocks_->Heat({LayerId(l), ExpertId(e)}));
    }
  }
  const absl::Status status = SaveHeat(options_.state_path, identity, heat);
  if (!status.ok()) talk_(absl::StrCat("the heat is not saved: ", status.message()));
}

void Daemon::StartFilling() {
  filler_ = std::thread([this] {
    const absl::Status status = blocks_->Fill([](uint64_t, uint64_t) {});
    if (status.ok()) {
      talk_(absl::StrCat(blocks_->stats().resident_count, " experts are in RAM"));
    } else if (!absl::IsCancelled(status)) {
      talk_(absl::StrCat("filling RAM: ", status.message()));
    }
    // Engines find from now on what was read unasked.
    for (uint32_t l = 0; l < options_.pack.layer_count; ++l) {
      for (uint32_t e = 0; e < options_.pack.expert_count; ++e) {
        ShowIfThere({LayerId(l), ExpertId(e)});
      }
    }
  });
}

void Daemon::WakeUp() {
  const uint64_t one = 1;
  // A full counter is a wake-up already.
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof(one));
}

absl::Status Daemon::Run(int stop_fd) {
  if (options_.fill) StartFilling();
  std::vector<pollfd> fds;
  std::vector<EngineSession*> of_fd;  // null: not a session's socket
  for (;;) {
    fds.clear();
    of_fd.clear();
    const auto add = [&](int fd, int16_t events, EngineSession* session) {
      fds.push_back({.fd = fd, .events = events, .revents = 0});
      of_fd.push_back(session);
    };
    add(stop_fd, POLLIN, nullptr);
    add(wake_.get(), POLLIN, nullptr);
    add(listening_.fd(), POLLIN, nullptr);
    for (const auto& session : sessions_) {
      if (session->connected()) {
        const int16_t events = session->Flush() ? POLLIN | POLLOUT : POLLIN;
        add(session->fd(), events, session.get());
      } else {
        // It has left: the end of its process is looked for. poll() passes over -1.
        add(session->pending_count() == 0 ? session->process_fd() : -1, POLLIN, nullptr);
      }
    }
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(kTickNs / 1'000'000));
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (fds[0].revents != 0) break;
    if (fds[1].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
    }
    if (fds[2].revents != 0) AcceptEngines();
    for (size_t i = 3; i < fds.size(); ++i) {
      if (fds[i].revents != 0 && of_fd[i] != nullptr) ServeTurn(*of_fd[i]);
    }
    Tick();
  }
  StopFilling();
  SaveState();
  for (const auto& session : sessions_) {
    if (!session->connected()) continue;
    session->Send(Encode(ErrorMessage{WireCode::kShuttingDown, "hearthd is ending"}, 0));
    EndSession(*session, "hearthd is ending");
  }
  return absl::OkStatus();
}

void Daemon::AcceptEngines() {
  for (;;) {
    absl::StatusOr<PacketSocket> socket = listening_.Accept();
    if (!socket.ok()) return talk_(absl::StrCat("accepting: ", socket.status().message()));
    if (!socket->valid()) return;
    const absl::StatusOr<PeerCredentials> peer = socket->Peer();
    ErrorMessage refusal;
    if (!peer.ok()) {
      refusal = {WireCode::kNotAllowed, std::string(peer.status().message())};
    } else if (peer->uid != ::geteuid() && peer->uid != 0) {
      refusal = {WireCode::kNotAllowed, absl::StrCat("user ", peer->uid, " is not the daemon's, ",
                                                     ::geteuid(), ": run hearthd as that user")};
    } else if (sessions_.size() >= kSessionsMax) {
      refusal = {WireCode::kTooMany,
                 absl::StrCat("hearthd serves ", kSessionsMax, " engines already: end one")};
    }
    if (refusal.code != WireCode::kNone) {
      ++refused_count_;
      (void)socket->Send(Encode(refusal, 0));  // best effort: the connection ends either way
      talk_(absl::StrCat("refused a connection: ", refusal.text));
      continue;
    }
    sessions_.push_back(std::make_unique<EngineSession>(*std::move(socket), ++session_number_,
                                                        *peer, clock_.NowNs()));
  }
}

void Daemon::ServeTurn(EngineSession& session) {
  for (uint32_t i = 0; i < kMessagesPerTurn && session.connected(); ++i) {
    const absl::StatusOr<Received> received = session.Receive(buffer_);
    absl::Status status = received.status();
    if (status.ok()) {
      if (*received == Received::kNothing) return;
      if (*received == Received::kClosed) return EndSession(session, "it closed its socket");
      status = Handle(session, buffer_.packet());
    }
    if (!status.ok()) {
      EndSession(session, {WireCode::kMalformed, std::string(status.message())}, 0);
    }
  }
}

void Daemon::EndSession(EngineSession& session, const ErrorMessage& error, uint64_t request) {
  ++refused_count_;
  session.Send(Encode(error, request));
  EndSession(session, error.text);
}

void Daemon::EndSession(EngineSession& session, std::string_view why) {
  if (!session.connected()) return;
  (void)session.Flush();
  session.Disconnect();
  ForgetHeld(session);
  talk_(absl::StrCat("engine ", session.number(), " (", session.name(), ", process ",
                     session.peer().pid, ") has left: ", ToAbsl(why)));
}

void Daemon::Tick() {
  const int64_t now_ns = clock_.NowNs();
  for (const auto& session : sessions_) {
    if (session->overflowed()) EndSession(*session, "it does not read its socket");
    if (!session->greeted() && now_ns - session->since_ns() > options_.greeting_wait_ns) {
      EndSession(*session, "it did not say HELLO");
    }
  }
  ForgetEnded();
  if (now_ns - saved_ns_ >= options_.save_every_ns) SaveState();
}

// A session whose engine cannot lease any more, and for which nothing is on its way.
void Daemon::ForgetEnded() {
  std::erase_if(sessions_, [this](const std::unique_ptr<EngineSession>& session) {
    if (session->connected() || session->pending_count() > 0) return false;
    if (!session->greeted()) return true;
    if (!session->page().closed() && !session->process_ended()) return false;
    const uint32_t held = session->page().held_count();
    leases_->RemovePage(session->page());
    reclaimed_lease_count_ += held;
    if (held > 0) {
      talk_(absl::StrCat("engine ", session->number(), ": ", held, " leases reclaimed"));
    }
    return true;
  });
}

StatsMessage Daemon::stats() const {
  const StoreStats s = blocks_->stats();
  return {.capacity_bytes = s.capacity_bytes,
          .resident_count = s.resident_count,
          .read_count = s.read_count,
          .read_bytes = s.read_bytes,
          .lookahead_read_count = s.lookahead_read_count,
          .lookahead_used_count = s.lookahead_used_count,
          .exchange_count = s.exchange_count,
          .read_busy_ns = s.read_busy_ns,
          .session_count = static_cast<uint32_t>(
              std::count_if(sessions_.begin(), sessions_.end(),
                            [](const auto& session) { return session->connected(); })),
          .refused_count = refused_count_,
          .reclaimed_lease_count = reclaimed_lease_count_};
}

}  // namespace hearth
