#include "cache/protocol/messages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// Starts a packet; Finish() writes its length.
void BeginIn(MessageType type, uint64_t request, std::vector<std::byte>& out) {
  out.clear();
  WireWriter w(out);
  w.Put(kFrameMagic);
  w.Put(kProtocolVersion);
  w.Put(static_cast<uint16_t>(type));
  w.Put(uint32_t{0});  // length
  w.Put(uint32_t{0});  // reserved
  w.Put(request);
}

std::vector<std::byte> Begin(MessageType type, uint64_t request) {
  std::vector<std::byte> out;
  BeginIn(type, request, out);
  return out;
}

constexpr size_t kLengthAtBytes = 8;
constexpr size_t kRequestAtBytes = 16;

template <class T>
void PutAt(std::vector<std::byte>& packet, size_t at_bytes, T value) {
  std::memcpy(&packet[at_bytes], &value, sizeof(value));
}

std::vector<std::byte> Finish(std::vector<std::byte> packet) {
  PutAt(packet, kLengthAtBytes, static_cast<uint32_t>(packet.size()));
  return packet;
}

absl::Status Malformed(const char* message, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(message, ": ", ToAbsl(what)));
}

absl::Status CheckComplete(const WireReader& r, const char* message) {
  if (!r.ok()) return Malformed(message, "shorter than its fields, or a text above its limit");
  if (!r.complete()) {
    return Malformed(message, absl::StrCat(r.left_bytes(), " bytes after its last field"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(uint64_t count, uint64_t minimum, uint64_t maximum, const char* message) {
  if (count >= minimum && count <= maximum) return absl::OkStatus();
  return Malformed(message, absl::StrCat(count, " entries, expected ", minimum, " to ", maximum));
}

absl::StatusOr<LayerId> GetLayer(WireReader& r, const char* message) {
  const auto layer = r.Get<uint32_t>();
  if (layer < kWireLayersMax) return LayerId(layer);
  return Malformed(message, absl::StrCat("layer ", layer, ", at most ", kWireLayersMax - 1));
}

absl::StatusOr<ExpertId> GetExpert(WireReader& r, const char* message) {
  const auto expert = r.Get<uint32_t>();
  if (expert < kWireExpertsMax) return ExpertId(expert);
  return Malformed(message, absl::StrCat("expert ", expert, ", at most ", kWireExpertsMax - 1));
}

void PutIdentity(WireWriter& w, const PackIdentity& pack) {
  w.PutText(std::string_view(pack.path).substr(0, kTextBytesMax));
  w.Put(pack.file_bytes);
  w.Put(pack.modified_ns);
  w.PutText(std::string_view(pack.manifest_hash).substr(0, kTextBytesMax));
  w.Put(pack.directory_crc32c);
  w.Put(pack.layer_count);
  w.Put(pack.expert_count);
}

absl::StatusOr<PackIdentity> GetIdentity(WireReader& r, const char* message) {
  PackIdentity pack;
  pack.path = r.GetText(kTextBytesMax);
  pack.file_bytes = r.Get<uint64_t>();
  pack.modified_ns = r.Get<int64_t>();
  pack.manifest_hash = r.GetText(kTextBytesMax);
  pack.directory_crc32c = r.Get<uint32_t>();
  pack.layer_count = r.Get<uint32_t>();
  pack.expert_count = r.Get<uint32_t>();
  if (!r.ok()) return Malformed(message, "shorter than its fields, or a text above its limit");
  if (pack.layer_count > kWireLayersMax || pack.expert_count > kWireExpertsMax) {
    return Malformed(message,
                     absl::StrCat(pack.layer_count, " layers of ", pack.expert_count,
                                  " experts, at most ", kWireLayersMax, " of ", kWireExpertsMax));
  }
  return pack;
}

absl::StatusOr<bool> GetFlag(WireReader& r, const char* message) {
  const auto flag = r.Get<uint8_t>();
  if (flag <= 1) return flag == 1;
  return Malformed(message, absl::StrCat("a flag is ", flag, ", expected 0 or 1"));
}

}  // namespace

const char* MessageTypeName(MessageType type) {
  switch (type) {
    case MessageType::kHello:
      return "HELLO";
    case MessageType::kWelcome:
      return "WELCOME";
    case MessageType::kFetch:
      return "FETCH";
    case MessageType::kArrived:
      return "ARRIVED";
    case MessageType::kLookAhead:
      return "LOOKAHEAD";
    case MessageType::kError:
      return "ERROR";
    case MessageType::kTraffic:
      return "TRAFFIC";
    case MessageType::kHeatIs:
      return "HEAT_IS";
    case MessageType::kHeld:
      return "HELD";
    case MessageType::kStatsAre:
      return "STATS_ARE";
    case MessageType::kHeatAsk:
      return "HEAT_ASK";
    case MessageType::kDone:
      return "DONE";
    case MessageType::kSeed:
      return "SEED";
    case MessageType::kStatsAsk:
      return "STATS_ASK";
    case MessageType::kLower:
      return "LOWER";
    case MessageType::kGoodbye:
      return "GOODBYE";
  }
  return "unknown message";
}

const char* WireCodeName(WireCode code) {
  switch (code) {
    case WireCode::kNone:
      return "none";
    case WireCode::kVersion:
      return "version";
    case WireCode::kMalformed:
      return "malformed";
    case WireCode::kWrongPack:
      return "wrong pack";
    case WireCode::kTooMany:
      return "too many";
    case WireCode::kNotAllowed:
      return "not allowed";
    case WireCode::kReadFailed:
      return "read failed";
    case WireCode::kBusy:
      return "busy";
    case WireCode::kShuttingDown:
      return "shutting down";
    case WireCode::kUnsupported:
      return "unsupported";
  }
  return "unknown code";
}

absl::StatusOr<Frame> DecodeFrame(std::span<const std::byte> packet) {
  if (packet.size() < kFrameHeaderBytes || packet.size() > kMessageBytesMax) {
    return Malformed("frame", absl::StrCat("a packet of ", packet.size(), " bytes, expected ",
                                           kFrameHeaderBytes, " to ", kMessageBytesMax));
  }
  WireReader r(packet);
  if (r.Get<uint32_t>() != kFrameMagic) return Malformed("frame", "it does not begin with HRTD");
  Frame frame;
  frame.version = r.Get<uint16_t>();
  frame.type = static_cast<MessageType>(r.Get<uint16_t>());
  const auto length = r.Get<uint32_t>();
  const auto reserved = r.Get<uint32_t>();
  frame.request = r.Get<uint64_t>();
  if (length != packet.size()) {
    return Malformed("frame", absl::StrCat("its length says ", length, ", the packet has ",
                                           packet.size(), " bytes"));
  }
  if (frame.version != kProtocolVersion) return frame;
  if (reserved != 0) return Malformed("frame", "its reserved field is not zero");
  frame.payload = packet.subspan(kFrameHeaderBytes);
  return frame;
}

std::vector<std::byte> EncodeEmpty(MessageType type, uint64_t request) {
  return Finish(Begin(type, request));
}

std::vector<std::byte> Encode(const HelloMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kHello, request);
  WireWriter w(out);
  PutIdentity(w, m.pack);
  w.PutText(std::string_view(m.name).substr(0, kTextBytesMax));
  return Finish(std::move(out));
}

absl::StatusOr<HelloMessage> DecodeHello(std::span<const std::byte> payload) {
  WireReader r(payload);
  HelloMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.pack, GetIdentity(r, "HELLO"));
  m.name = r.GetText(kTextBytesMax);
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "HELLO"));
  return m;
}

std::vector<std::byte> Encode(const WelcomeMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kWelcome, request);
  WireWriter w(out);
  PutIdentity(w, m.pack);
  w.Put(m.arena_bytes);
  w.Put(m.directory_bytes);
  w.Put(m.hazard_count);
  w.Put(m.session);
  w.Put(m.resident_count);
  return Finish(std::move(out));
}

absl::StatusOr<WelcomeMessage> DecodeWelcome(std::span<const std::byte> payload) {
  WireReader r(payload);
  WelcomeMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.pack, GetIdentity(r, "WELCOME"));
  m.arena_bytes = r.Get<uint64_t>();
  m.directory_bytes = r.Get<uint64_t>();
  m.hazard_count = r.Get<uint32_t>();
  m.session = r.Get<uint32_t>();
  m.resident_count = r.Get<uint64_t>();
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "WELCOME"));
  return m;
}

std::vector<std::byte> Encode(const FetchMessage& m, uint64_t request) {
  std::vector<std::byte> out;
  EncodeFetch(m.layer, m.entries, request, out);
  return out;
}

void EncodeFetch(LayerId layer, std::span<const FetchEntry> entries, uint64_t request,
                 std::vector<std::byte>& out) {
  BeginIn(MessageType::kFetch, request, out);
  WireWriter w(out);
  w.Put(layer.value);
  w.Put(static_cast<uint32_t>(entries.size()));
  for (const FetchEntry& e : entries) {
    w.Put(e.expert.value);
    w.Put(e.hazard);
  }
  PutAt(out, kLengthAtBytes, static_cast<uint32_t>(out.size()));
}

absl::StatusOr<FetchMessage> DecodeFetch(std::span<const std::byte> payload) {
  WireReader r(payload);
  FetchMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.layer, GetLayer(r, "FETCH"));
  const auto count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckCount(count, 1, kFetchEntriesMax, "FETCH"));
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    FetchEntry e;
    HEARTH_ASSIGN_OR_RETURN(e.expert, GetExpert(r, "FETCH"));
    e.hazard = r.Get<uint32_t>();
    m.entries.push_back(e);
  }
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "FETCH"));
  return m;
}

std::vector<std::byte> Encode(const ArrivedMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kArrived, request);
  WireWriter w(out);
  w.PutText(std::string_view(m.text).substr(0, kTextBytesMax));
  w.Put(static_cast<uint32_t>(m.entries.size()));
  for (const ArrivedEntry& e : m.entries) {
    w.Put(e.hazard);
    w.Put(static_cast<uint32_t>(e.code));
    w.Put(e.arena_page);
  }
  return Finish(std::move(out));
}

absl::StatusOr<ArrivedMessage> DecodeArrived(std::span<const std::byte> payload) {
  WireReader r(payload);
  ArrivedMessage m;
  m.text = r.GetText(kTextBytesMax);
  const auto count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckCount(count, 1, kFetchEntriesMax, "ARRIVED"));
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    ArrivedEntry e;
    e.hazard = r.Get<uint32_t>();
    e.code = static_cast<WireCode>(r.Get<uint32_t>());
    e.arena_page = r.Get<uint32_t>();
    m.entries.push_back(e);
  }
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "ARRIVED"));
  return m;
}

std::vector<std::byte> Encode(const LookAheadMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kLookAhead, request);
  WireWriter w(out);
  w.Put(m.layer.value);
  w.Put(static_cast<uint32_t>(m.experts.size()));
  for (const ExpertId e : m.experts) w.Put(e.value);
  return Finish(std::move(out));
}

absl::StatusOr<LookAheadMessage> DecodeLookAhead(std::span<const std::byte> payload) {
  WireReader r(payload);
  LookAheadMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.layer, GetLayer(r, "LOOKAHEAD"));
  const auto count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckCount(count, 1, kLookAheadEntriesMax, "LOOKAHEAD"));
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const ExpertId expert, GetExpert(r, "LOOKAHEAD"));
    m.experts.push_back(expert);
  }
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "LOOKAHEAD"));
  return m;
}

std::vector<std::byte> Encode(const TrafficMessage& m, uint64_t request) {
  TrafficPacket packet;
  for (const WireLayerTraffic& layer : m.layers) {
    packet.BeginLayer(layer.layer, layer.kind);
    for (const WireSighting& s : layer.experts) packet.Add(ExpertId(s.expert), s.entry_count);
  }
  const std::span<const std::byte> bytes = packet.Finish(m.ends_window, m.token_count);
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  PutAt(out, kRequestAtBytes, request);
  return out;
}

void TrafficPacket::Clear() {
  BeginIn(MessageType::kTraffic, 0, packet_);
  WireWriter w(packet_);
  w.Put(uint8_t{0});   // ends_window
  w.Put(uint32_t{0});  // token_count
  w.Put(uint32_t{0});  // layers
  layer_count_ = 0;
}

void TrafficPacket::BeginLayer(LayerId layer, uint8_t kind) {
  WireWriter w(packet_);
  w.Put(layer.value);
  w.Put(kind);
  layer_at_bytes_ = packet_.size();
  w.Put(uint32_t{0});
  ++layer_count_;
  sighting_count_ = 0;
}

void TrafficPacket::Add(ExpertId expert, uint32_t entry_count) {
  WireWriter w(packet_);
  w.Put(static_cast<uint16_t>(expert.value));
  w.Put(static_cast<uint16_t>(std::min<uint32_t>(entry_count, UINT16_MAX)));
  PutAt(packet_, layer_at_bytes_, ++sighting_count_);
}

std::span<const std::byte> TrafficPacket::Finish(bool ends_window, uint32_t token_count) {
  PutAt(packet_, kFrameHeaderBytes, static_cast<uint8_t>(ends_window ? 1 : 0));
  PutAt(packet_, kFrameHeaderBytes + 1, token_count);
  PutAt(packet_, kFrameHeaderBytes + 5, layer_count_);
  PutAt(packet_, kLengthAtBytes, static_cast<uint32_t>(packet_.size()));
  return packet_;
}

absl::StatusOr<TrafficMessage> DecodeTraffic(std::span<const std::byte> payload) {
  WireReader r(payload);
  TrafficMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.ends_window, GetFlag(r, "TRAFFIC"));
  m.token_count = r.Get<uint32_t>();
  const auto layer_count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckCount(layer_count, 0, kTrafficLayersMax, "TRAFFIC"));
  for (uint32_t i = 0; i < layer_count && r.ok(); ++i) {
    WireLayerTraffic layer;
    HEARTH_ASSIGN_OR_RETURN(layer.layer, GetLayer(r, "TRAFFIC"));
    layer.kind = r.Get<uint8_t>();
    if (layer.kind > 1) {
      return Malformed("TRAFFIC", absl::StrCat("kind ", layer.kind, ", expected 0 or 1"));
    }
    const auto count = r.Get<uint32_t>();
    HEARTH_RETURN_IF_ERROR(CheckCount(count, 0, r.left_bytes() / sizeof(WireSighting), "TRAFFIC"));
    uint32_t above = 0;  // one more than the expert before
    for (uint32_t k = 0; k < count; ++k) {
      const WireSighting s{r.Get<uint16_t>(), r.Get<uint16_t>()};
      if (s.expert < above) return Malformed("TRAFFIC", "experts are not in ascending order");
      above = uint32_t{s.expert} + 1;
      layer.experts.push_back(s);
    }
    m.layers.push_back(std::move(layer));
  }
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "TRAFFIC"));
  return m;
}

std::vector<std::byte> Encode(const HeldMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kHeld, request);
  WireWriter w(out);
  w.Put(static_cast<uint32_t>(m.changes.size()));
  for (const HeldChange& c : m.changes) {
    w.Put(c.key.layer.value);
    w.Put(c.key.expert.value);
    w.Put(static_cast<uint8_t>(c.held ? 1 : 0));
  }
  return Finish(std::move(out));
}

absl::StatusOr<HeldMessage> DecodeHeld(std::span<const std::byte> payload) {
  WireReader r(payload);
  HeldMessage m;
  const auto count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckCount(count, 1, kHeldChangesMax, "HELD"));
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    HeldChange c;
    HEARTH_ASSIGN_OR_RETURN(c.key.layer, GetLayer(r, "HELD"));
    HEARTH_ASSIGN_OR_RETURN(c.key.expert, GetExpert(r, "HELD"));
    HEARTH_ASSIGN_OR_RETURN(c.held, GetFlag(r, "HELD"));
    m.changes.push_back(c);
  }
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "HELD"));
  return m;
}

std::vector<std::byte> Encode(const HeatAskMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kHeatAsk, request);
  WireWriter w(out);
  w.Put(m.layer.value);
  w.Put(m.first_expert);
  w.Put(m.expert_count);
  return Finish(std::move(out));
}

absl::StatusOr<HeatAskMessage> DecodeHeatAsk(std::span<const std::byte> payload) {
  WireReader r(payload);
  HeatAskMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.layer, GetLayer(r, "HEAT_ASK"));
  m.first_expert = r.Get<uint32_t>();
  m.expert_count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "HEAT_ASK"));
  HEARTH_RETURN_IF_ERROR(CheckCount(m.expert_count, 1, kHeatValuesMax, "HEAT_ASK"));
  if (m.first_expert >= kWireExpertsMax) return Malformed("HEAT_ASK", "no such first expert");
  return m;
}

std::vector<std::byte> Encode(MessageType type, const HeatMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(type, request);
  WireWriter w(out);
  w.Put(m.layer.value);
  w.Put(m.first_expert);
  w.Put(static_cast<uint32_t>(m.values.size()));
  for (const float value : m.values) w.Put(value);
  return Finish(std::move(out));
}

absl::StatusOr<HeatMessage> DecodeHeat(std::span<const std::byte> payload) {
  WireReader r(payload);
  HeatMessage m;
  HEARTH_ASSIGN_OR_RETURN(m.layer, GetLayer(r, "HEAT"));
  m.first_expert = r.Get<uint32_t>();
  if (m.first_expert >= kWireExpertsMax) return Malformed("HEAT", "no such first expert");
  const auto count = r.Get<uint32_t>();
  HEARTH_RETURN_IF_ERROR(CheckCount(count, 1, kHeatValuesMax, "HEAT"));
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    const auto value = r.Get<float>();
    if (!std::isfinite(value) || value < 0) {
      return Malformed("HEAT", "a value is negative or not finite");
    }
    m.values.push_back(value);
  }
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "HEAT"));
  return m;
}

std::vector<std::byte> Encode(const StatsMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kStatsAre, request);
  WireWriter w(out);
  w.Put(m.capacity_bytes);
  w.Put(m.resident_count);
  w.Put(m.read_count);
  w.Put(m.read_bytes);
  w.Put(m.lookahead_read_count);
  w.Put(m.lookahead_used_count);
  w.Put(m.exchange_count);
  w.Put(m.read_busy_ns);
  w.Put(m.session_count);
  w.Put(m.refused_count);
  w.Put(m.reclaimed_lease_count);
  return Finish(std::move(out));
}

absl::StatusOr<StatsMessage> DecodeStats(std::span<const std::byte> payload) {
  WireReader r(payload);
  StatsMessage m;
  m.capacity_bytes = r.Get<uint64_t>();
  m.resident_count = r.Get<uint64_t>();
  m.read_count = r.Get<uint64_t>();
  m.read_bytes = r.Get<uint64_t>();
  m.lookahead_read_count = r.Get<uint64_t>();
  m.lookahead_used_count = r.Get<uint64_t>();
  m.exchange_count = r.Get<uint64_t>();
  m.read_busy_ns = r.Get<int64_t>();
  m.session_count = r.Get<uint32_t>();
  m.refused_count = r.Get<uint64_t>();
  m.reclaimed_lease_count = r.Get<uint64_t>();
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "STATS_ARE"));
  return m;
}

std::vector<std::byte> Encode(const LowerMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kLower, request);
  WireWriter(out).Put(m.arena_bytes);
  return Finish(std::move(out));
}

absl::StatusOr<LowerMessage> DecodeLower(std::span<const std::byte> payload) {
  WireReader r(payload);
  const LowerMessage m{r.Get<uint64_t>()};
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "LOWER"));
  return m;
}

std::vector<std::byte> Encode(const ErrorMessage& m, uint64_t request) {
  std::vector<std::byte> out = Begin(MessageType::kError, request);
  WireWriter w(out);
  w.Put(static_cast<uint32_t>(m.code));
  w.PutText(std::string_view(m.text).substr(0, kTextBytesMax));
  return Finish(std::move(out));
}

absl::StatusOr<ErrorMessage> DecodeError(std::span<const std::byte> payload) {
  WireReader r(payload);
  ErrorMessage m;
  m.code = static_cast<WireCode>(r.Get<uint32_t>());
  m.text = r.GetText(kTextBytesMax);
  HEARTH_RETURN_IF_ERROR(CheckComplete(r, "ERROR"));
  return m;
}

}  // namespace hearth
