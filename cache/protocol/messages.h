// What an engine and the daemon say to each other, as values. PROTOCOL.md is the specification: the
// layout of each message, who sends it and when. Encoding never fails for values within the limits;
// decoding checks every field, so that a decoded message is within them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/protocol/wire.h"
#include "runtime/base/ids.h"

namespace hearth {

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr uint32_t kFrameMagic = 0x44545248;  // "HRTD" as bytes in order
inline constexpr size_t kFrameHeaderBytes = 24;
// A packet is one message. 64 KiB is a third of the smallest default send buffer (208 KiB).
inline constexpr size_t kMessageBytesMax = 64 * 1024;
inline constexpr size_t kTextBytesMax = 4096;        // of an error, a path or a name
inline constexpr uint32_t kFetchEntriesMax = 1024;   // of one FETCH or ARRIVED
inline constexpr uint32_t kTrafficLayersMax = 4096;  // of one TRAFFIC
inline constexpr uint32_t kHeldChangesMax = 4096;    // of one HELD
inline constexpr uint32_t kHeatValuesMax = 8192;     // of one HEAT_IS or SEED
inline constexpr uint32_t kLookAheadEntriesMax = 1024;
inline constexpr uint32_t kWireLayersMax = 4096;       // layers of a model
inline constexpr uint32_t kWireExpertsMax = 1u << 16;  // experts of a layer

// On the wire: append only. An odd number is said by engines, an even one by the daemon.
enum class MessageType : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kFetch = 3,
  kArrived = 4,
  kLookAhead = 5,
  kError = 6,
  kTraffic = 7,
  kHeatIs = 8,
  kHeld = 9,
  kStatsAre = 10,
  kHeatAsk = 11,
  kDone = 12,
  kSeed = 13,
  kStatsAsk = 15,
  kLower = 17,
  kGoodbye = 19,
};
const char* MessageTypeName(MessageType type);  // "HELLO"

// On the wire: append only.
enum class WireCode : uint32_t {
  kNone = 0,        // no error
  kVersion = 1,     // the other side speaks another version
  kMalformed = 2,   // a message that breaks the grammar or a limit: the session ends
  kWrongPack = 3,   // the daemon serves another pack
  kTooMany = 4,     // no room: sessions, fetches
  kNotAllowed = 5,  // the peer is not the daemon's user
  kReadFailed = 6,  // the drive or the checksum
  kBusy = 7,        // no block free for the read: read it elsewhere
  kShuttingDown = 8,
  kUnsupported = 9,
};
const char* WireCodeName(WireCode code);

// Identifies the bytes of all experts. `path` and `modified_ns` are for messages to people: two
// copies of a pack serve each other.
struct PackIdentity {
  std::string path;  // of experts.bin
  uint64_t file_bytes = 0;
  int64_t modified_ns = 0;
  std::string manifest_hash;      // 32 hex digits
  uint32_t directory_crc32c = 0;  // over layouts and checksums of all experts
  uint32_t layer_count = 0;       // the MTP layer included
  uint32_t expert_count = 0;      // per layer
  bool SameBytesAs(const PackIdentity& other) const {
    return file_bytes == other.file_bytes && manifest_hash == other.manifest_hash &&
           directory_crc32c == other.directory_crc32c && layer_count == other.layer_count &&
           expert_count == other.expert_count;
  }
  bool operator==(const PackIdentity&) const = default;
};

struct HelloMessage {
  PackIdentity pack;
  std::string name;  // of the engine, for the daemon's list
  bool operator==(const HelloMessage&) const = default;
};

// Comes with three descriptors: arena, directory, hazard page.
struct WelcomeMessage {
  PackIdentity pack;  // as the daemon opened it
  uint64_t arena_bytes = 0;
  uint64_t directory_bytes = 0;
  uint32_t hazard_count = 0;
  uint32_t session = 0;         // number, for messages to people
  uint64_t resident_count = 0;  // now
  bool operator==(const WelcomeMessage&) const = default;
};

struct FetchEntry {
  ExpertId expert;
  uint32_t hazard = 0;  // word of the hazard page that will hold it
  bool operator==(const FetchEntry&) const = default;
};
struct FetchMessage {
  LayerId layer;
  std::vector<FetchEntry> entries;  // 1 to kFetchEntriesMax
  bool operator==(const FetchMessage&) const = default;
};

struct ArrivedEntry {
  uint32_t hazard = 0;  // of the FETCH; set by the daemon when `code` is kNone
  WireCode code = WireCode::kNone;
  uint32_t arena_page = 0;  // 4 KiB pages from the start of the arena
  bool operator==(const ArrivedEntry&) const = default;
};
struct ArrivedMessage {
  std::vector<ArrivedEntry> entries;  // 1 to kFetchEntriesMax
  std::string text;                   // what went wrong with the failed ones
  bool operator==(const ArrivedMessage&) const = default;
};

struct LookAheadMessage {
  LayerId layer;
  std::vector<ExpertId> experts;
  bool operator==(const LookAheadMessage&) const = default;
};

struct WireSighting {
  uint16_t expert = 0;
  uint16_t entry_count = 0;  // 65,535 stands for that and more
  bool operator==(const WireSighting&) const = default;
};
struct WireLayerTraffic {
  LayerId layer;
  uint8_t kind = 0;  // TrafficKind
  std::vector<WireSighting> experts;
  bool operator==(const WireLayerTraffic&) const = default;
};
struct TrafficMessage {
  bool ends_window = false;  // false: the rest of the window follows in another message
  uint32_t token_count = 0;
  std::vector<WireLayerTraffic> layers;
  bool operator==(const TrafficMessage&) const = default;
};

struct HeldChange {
  ExpertKey key;
  bool held = false;
  bool operator==(const HeldChange&) const = default;
};
struct HeldMessage {
  std::vector<HeldChange> changes;
  bool operator==(const HeldMessage&) const = default;
};

struct HeatAskMessage {
  LayerId layer;
  uint32_t first_expert = 0;
  uint32_t expert_count = 0;  // 1 to kHeatValuesMax
  bool operator==(const HeatAskMessage&) const = default;
};
struct HeatMessage {  // HEAT_IS and SEED: a run of experts of one layer
  LayerId layer;
  uint32_t first_expert = 0;
  std::vector<float> values;  // finite, not negative
  bool operator==(const HeatMessage&) const = default;
};

struct StatsMessage {
  uint64_t capacity_bytes = 0;
  uint64_t resident_count = 0;
  uint64_t read_count = 0;
  uint64_t read_bytes = 0;
  uint64_t lookahead_read_count = 0;
  uint64_t lookahead_used_count = 0;
  uint64_t exchange_count = 0;
  int64_t read_busy_ns = 0;
  uint32_t session_count = 0;
  uint64_t refused_count = 0;          // connections and sessions ended for what they said
  uint64_t reclaimed_lease_count = 0;  // of engines that died
  bool operator==(const StatsMessage&) const = default;
};

struct LowerMessage {
  uint64_t arena_bytes = 0;  // at most, from now on
  bool operator==(const LowerMessage&) const = default;
};

struct ErrorMessage {
  WireCode code = WireCode::kNone;
  std::string text;
  bool operator==(const ErrorMessage&) const = default;
};

// A frame that passed its checks; `payload` points into what was decoded.
struct Frame {
  uint16_t version = 0;
  MessageType type = MessageType::kError;
  uint64_t request = 0;  // chosen by the engine, repeated in the answer; 0 when there is none
  std::span<const std::byte> payload;
};

// Checks magic, length and limits. A frame of another version decodes, with an empty payload: its
// first kFrameHeaderBytes mean the same in every version.
absl::StatusOr<Frame> DecodeFrame(std::span<const std::byte> packet);

// One packet. Messages without fields (HEAT_ASK has some; STATS_ASK, DONE, GOODBYE do not) have
// an empty payload.
std::vector<std::byte> EncodeEmpty(MessageType type, uint64_t request);
std::vector<std::byte> Encode(const HelloMessage& m, uint64_t request);
std::vector<std::byte> Encode(const WelcomeMessage& m, uint64_t request);
std::vector<std::byte> Encode(const FetchMessage& m, uint64_t request);
// The same into `out`, which keeps its memory.
void EncodeFetch(LayerId layer, std::span<const FetchEntry> entries, uint64_t request,
                 std::vector<std::byte>& out);
std::vector<std::byte> Encode(const ArrivedMessage& m, uint64_t request);
std::vector<std::byte> Encode(const LookAheadMessage& m, uint64_t request);
std::vector<std::byte> Encode(const TrafficMessage& m, uint64_t request);
std::vector<std::byte> Encode(const HeldMessage& m, uint64_t request);
std::vector<std::byte> Encode(const HeatAskMessage& m, uint64_t request);
std::vector<std::byte> Encode(MessageType type, const HeatMessage& m, uint64_t request);
std::vector<std::byte> Encode(const StatsMessage& m, uint64_t request);
std::vector<std::byte> Encode(const LowerMessage& m, uint64_t request);
std::vector<std::byte> Encode(const ErrorMessage& m, uint64_t request);

// A TRAFFIC packet that grows layer by layer and keeps its memory from window to window.
class TrafficPacket {
 public:
  TrafficPacket() { Clear(); }
  void Clear();
  bool empty() const { return layer_count_ == 0; }
  // Starts the next layer; its sightings follow in ascending order. At most kWireExpertsMax.
  void BeginLayer(LayerId layer, uint8_t kind);
  void Add(ExpertId expert, uint32_t entry_count);
  // What a layer of `expert_count` sightings would take, and what is taken.
  static size_t LayerBytes(size_t expert_count) { return 9 + expert_count * sizeof(WireSighting); }
  size_t bytes() const { return packet_.size(); }
  // Valid until the next call.
  std::span<const std::byte> Finish(bool ends_window, uint32_t token_count);

 private:
  std::vector<std::byte> packet_;
  size_t layer_at_bytes_ = 0;  // where the count of the layer begun lies
  uint32_t layer_count_ = 0;
  uint32_t sighting_count_ = 0;  // of that layer
};

// InvalidArgument names the message and the field. `payload` is the frame's; nothing may be left
// over. Layers and experts are checked against the wire's limits, not against a model: the caller
// does that.
absl::StatusOr<HelloMessage> DecodeHello(std::span<const std::byte> payload);
absl::StatusOr<WelcomeMessage> DecodeWelcome(std::span<const std::byte> payload);
absl::StatusOr<FetchMessage> DecodeFetch(std::span<const std::byte> payload);
absl::StatusOr<ArrivedMessage> DecodeArrived(std::span<const std::byte> payload);
absl::StatusOr<LookAheadMessage> DecodeLookAhead(std::span<const std::byte> payload);
absl::StatusOr<TrafficMessage> DecodeTraffic(std::span<const std::byte> payload);
absl::StatusOr<HeldMessage> DecodeHeld(std::span<const std::byte> payload);
absl::StatusOr<HeatAskMessage> DecodeHeatAsk(std::span<const std::byte> payload);
absl::StatusOr<HeatMessage> DecodeHeat(std::span<const std::byte> payload);
absl::StatusOr<StatsMessage> DecodeStats(std::span<const std::byte> payload);
absl::StatusOr<LowerMessage> DecodeLower(std::span<const std::byte> payload);
absl::StatusOr<ErrorMessage> DecodeError(std::span<const std::byte> payload);

}  // namespace hearth
