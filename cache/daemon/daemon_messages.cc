// What each message of an engine does.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/daemon/daemon.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

std::string DescribePack(const PackIdentity& pack) {
  return absl::StrCat(pack.path, " (", pack.layer_count, " layers of ", pack.expert_count,
                      " experts, ", pack.file_bytes, " bytes, manifest ", pack.manifest_hash, ")");
}

}  // namespace

absl::Status Daemon::Handle(EngineSession& session, std::span<const std::byte> packet) {
  HEARTH_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(packet));
  if (frame.version != kProtocolVersion) {
    EndSession(session,
               {WireCode::kVersion,
                absl::StrCat("protocol version ", frame.version, ", this hearthd speaks ",
                             kProtocolVersion, ": use engine and daemon of one release")},
               frame.request);
    return absl::OkStatus();
  }
  if (frame.type == MessageType::kHello) return HandleHello(session, frame);
  if (!session.greeted()) {
    return absl::InvalidArgumentError(absl::StrCat(MessageTypeName(frame.type), " before HELLO"));
  }
  switch (frame.type) {
    case MessageType::kFetch:
      return HandleFetch(session, frame);
    case MessageType::kLookAhead:
      return HandleLookAhead(frame);
    case MessageType::kTraffic:
      return HandleTraffic(frame);
    case MessageType::kHeld:
      return HandleHeld(session, frame);
    case MessageType::kHeatAsk:
      return HandleHeatAsk(session, frame);
    case MessageType::kSeed:
      return HandleSeed(frame);
    case MessageType::kLower:
      return HandleLower(session, frame);
    case MessageType::kStatsAsk:
    case MessageType::kGoodbye:
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("an engine does not say ",
                                                     MessageTypeName(frame.type), " (",
                                                     static_cast<uint32_t>(frame.type), ")"));
  }
  if (!frame.payload.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(MessageTypeName(frame.type), ": it has no fields"));
  }
  if (frame.type == MessageType::kGoodbye) {
    EndSession(session, "it said GOODBYE");
  } else {
    session.Send(Encode(stats(), frame.request));
  }
  return absl::OkStatus();
}

absl::Status Daemon::HandleHello(EngineSession& session, const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const HelloMessage hello, DecodeHello(frame.payload));
  if (session.greeted()) return absl::InvalidArgumentError("a second HELLO");
  if (!hello.pack.SameBytesAs(options_.pack)) {
    EndSession(session,
               {WireCode::kWrongPack,
                absl::StrCat("hearthd serves another pack: it has ", DescribePack(options_.pack),
                             ", the engine opened ", DescribePack(hello.pack))},
               frame.request);
    return absl::OkStatus();
  }
  const WelcomeMessage welcome{.pack = options_.pack,
                               .arena_bytes = arena_.data().size(),
                               .directory_bytes = leases_->directory_memory().data().size(),
                               .resident_count = blocks_->stats().resident_count};
  HEARTH_RETURN_IF_ERROR(session.Welcome(hello, welcome, frame.request, arena_.shared_fd(),
                                         leases_->directory_memory().shared_fd()));
  leases_->AddPage(session.page());
  TellAllHeld();
  talk_(absl::StrCat("engine ", session.number(), " (", session.name(), ", process ",
                     session.peer().pid, ") has come; ", welcome.resident_count,
                     " experts are in RAM"));
  return absl::OkStatus();
}

absl::Status Daemon::CheckKey(const char* message, LayerId layer, uint32_t expert) const {
  if (layer.value < options_.pack.layer_count && expert < options_.pack.expert_count) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(message, ": layer ", layer.value, " expert ", expert, ", the pack has ",
                   options_.pack.layer_count, " layers of ", options_.pack.expert_count));
}

absl::Status Daemon::HandleFetch(EngineSession& session, const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const FetchMessage fetch, DecodeFetch(frame.payload));
  for (const FetchEntry& entry : fetch.entries) {
    HEARTH_RETURN_IF_ERROR(CheckKey("FETCH", fetch.layer, entry.expert.value));
    const ExpertKey key{fetch.layer, entry.expert};
    HEARTH_ASSIGN_OR_RETURN(EngineSession::Fetch* const started,
                            session.BeginFetch(entry.hazard, key, frame.request));
    StartFetch(*started);
  }
  return absl::OkStatus();
}

// The arrival may come at once, on this thread, or later on the I/O thread; the session lives until
// it has. Two words are captured: such a function takes no memory of its own.
void Daemon::StartFetch(EngineSession::Fetch& fetch) {
  blocks_->Fetch(fetch.key, [this, &fetch](const absl::StatusOr<BlockId>& block) {
    EngineSession& session = *fetch.session;
    const std::span<const std::byte> bytes =
        block.ok() ? blocks_->bytes(*block) : std::span<std::byte>();
    const bool waits = session.Arrive(fetch, block, bytes, *leases_);
    if (block.ok()) blocks_->Release(*block);
    if (waits) WakeUp();
  });
}

absl::Status Daemon::HandleLookAhead(const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const LookAheadMessage ahead, DecodeLookAhead(frame.payload));
  for (const ExpertId expert : ahead.experts) {
    HEARTH_RETURN_IF_ERROR(CheckKey("LOOKAHEAD", ahead.layer, expert.value));
    blocks_->LookAhead({ahead.layer, expert});
  }
  return absl::OkStatus();
}

// Leases the expert for a moment: so the RAM tier learns that it is used, and the directory shows
// what came in unasked.
void Daemon::ShowIfThere(ExpertKey key) {
  const BlockId block = blocks_->Lease(key);
  if (!block.valid()) return;
  leases_->Publish(block, key, blocks_->bytes(block));
  blocks_->Release(block);
}

absl::Status Daemon::HandleTraffic(const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const TrafficMessage traffic, DecodeTraffic(frame.payload));
  std::vector<ExpertSighting> sightings;
  for (const WireLayerTraffic& layer : traffic.layers) {
    sightings.clear();
    for (const WireSighting& s : layer.experts) {
      HEARTH_RETURN_IF_ERROR(CheckKey("TRAFFIC", layer.layer, s.expert));
      sightings.push_back({.expert = ExpertId(s.expert), .entry_count = s.entry_count});
    }
    HEARTH_RETURN_IF_ERROR(CheckKey("TRAFFIC", layer.layer, 0));
    blocks_->Observe(
        {.layer = layer.layer, .experts = sightings, .kind = static_cast<TrafficKind>(layer.kind)});
    for (const ExpertSighting& s : sightings) ShowIfThere({layer.layer, s.expert});
  }
  if (traffic.ends_window) blocks_->EndWindow(traffic.token_count);
  return absl::OkStatus();
}

absl::Status Daemon::HandleHeld(EngineSession& session, const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const HeldMessage held, DecodeHeld(frame.payload));
  for (const HeldChange& change : held.changes) {
    HEARTH_RETURN_IF_ERROR(CheckKey("HELD", change.key.layer, change.key.expert.value));
    SetHeld(session, change.key, change.held);
  }
  return absl::OkStatus();
}

absl::Status Daemon::HandleHeatAsk(EngineSession& session, const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const HeatAskMessage ask, DecodeHeatAsk(frame.payload));
  HEARTH_RETURN_IF_ERROR(CheckKey("HEAT_ASK", ask.layer, ask.first_expert + ask.expert_count - 1));
  HeatMessage heat{.layer = ask.layer, .first_expert = ask.first_expert, .values = {}};
  for (uint32_t e = 0; e < ask.expert_count; ++e) {
    heat.values.push_back(blocks_->Heat({ask.layer, ExpertId(ask.first_expert + e)}));
  }
  session.Send(Encode(MessageType::kHeatIs, heat, frame.request));
  return absl::OkStatus();
}

absl::Status Daemon::HandleSeed(const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const HeatMessage seed, DecodeHeat(frame.payload));
  HEARTH_RETURN_IF_ERROR(CheckKey(
      "SEED", seed.layer, seed.first_expert + static_cast<uint32_t>(seed.values.size()) - 1));
  std::vector<float> sightings(options_.pack.expert_count);
  std::copy(seed.values.begin(), seed.values.end(), sightings.begin() + seed.first_expert);
  blocks_->Seed(seed.layer, sightings);
  return absl::OkStatus();
}

absl::Status Daemon::HandleLower(EngineSession& session, const Frame& frame) {
  HEARTH_ASSIGN_OR_RETURN(const LowerMessage lower, DecodeLower(frame.payload));
  if (lower.arena_bytes > budget_bytes_) {
    session.Send(
        Encode(ErrorMessage{WireCode::kUnsupported,
                            absl::StrCat("the RAM budget is ", FormatBytes(budget_bytes_),
                                         " and can only be lowered: start hearthd anew for more")},
               frame.request));
    return absl::OkStatus();
  }
  blocks_->Lower(lower.arena_bytes);
  budget_bytes_ = lower.arena_bytes;
  talk_(absl::StrCat("the RAM budget is ", FormatBytes(budget_bytes_), " from now on"));
  session.Send(EncodeEmpty(MessageType::kDone, frame.request));
  return absl::OkStatus();
}

void Daemon::SetHeld(EngineSession& session, ExpertKey key, bool held) {
  auto of = std::find_if(held_.begin(), held_.end(),
                         [&](const Held& h) { return h.session == &session; });
  if (of == held_.end()) {
    held_.push_back({&session, std::vector<uint8_t>(held_count_.size())});
    of = held_.end() - 1;
  }
  uint8_t& now = of->keys[KeyIndex(key)];
  if ((now != 0) == held) return;
  now = held ? 1 : 0;
  held_count_[KeyIndex(key)] = static_cast<uint16_t>(held_count_[KeyIndex(key)] + (held ? 1 : -1));
  TellHeld(key);
}

void Daemon::ForgetHeld(EngineSession& session) {
  std::erase_if(held_, [&](const Held& held) {
    if (held.session != &session) return false;
    for (size_t i = 0; i < held.keys.size(); ++i) {
      held_count_[i] = static_cast<uint16_t>(held_count_[i] - held.keys[i]);
    }
    return true;
  });
  TellAllHeld();
}

void Daemon::TellHeld(ExpertKey key) {
  const auto engines =
      static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(), [](const auto& s) {
        return s->connected() && s->greeted();
      }));
  const size_t i = KeyIndex(key);
  const uint8_t held = engines > 0 && held_count_[i] == engines ? 1 : 0;
  if (std::exchange(told_held_[i], held) != held) blocks_->SetHeldInVram(key, held != 0);
}

void Daemon::TellAllHeld() {
  for (uint32_t l = 0; l < options_.pack.layer_count; ++l) {
    for (uint32_t e = 0; e < options_.pack.expert_count; ++e) TellHeld({LayerId(l), ExpertId(e)});
  }
}

}  // namespace hearth
