// One of each message, with every field set: round trips and damage start from these.
#pragma once

#include <vector>

#include "cache/protocol/messages.h"

namespace hearth {

inline PackIdentity SampleIdentity() {
  return {.path = "/models/flashlet/experts.bin",
          .file_bytes = 123'456'789,
          .modified_ns = 1'700'000'000'000'000'000,
          .manifest_hash = "0123456789abcdef0123456789abcdef",
          .directory_crc32c = 0xDEADBEEF,
          .layer_count = 9,
          .expert_count = 64};
}

inline HelloMessage SampleHello() { return {.pack = SampleIdentity(), .name = "hearth run"}; }
inline WelcomeMessage SampleWelcome() {
  return {.pack = SampleIdentity(),
          .arena_bytes = 1 << 20,
          .directory_bytes = 4672,
          .hazard_count = 2048,
          .session = 3,
          .resident_count = 77};
}
inline FetchMessage SampleFetch() {
  return {.layer = LayerId(5), .entries = {{ExpertId(1), 7}, {ExpertId(40), 8}}};
}
inline ArrivedMessage SampleArrived() {
  return {.entries = {{7, WireCode::kNone, 345}, {8, WireCode::kReadFailed, 0}},
          .text = "experts.bin: layer 5 expert 40: input/output error"};
}
inline LookAheadMessage SampleLookAhead() {
  return {.layer = LayerId(6), .experts = {ExpertId(3), ExpertId(2)}};
}
inline TrafficMessage SampleTraffic() {
  return {.ends_window = true,
          .token_count = 4,
          .layers = {{LayerId(0), 0, {{1, 2}, {9, 1}}}, {LayerId(1), 1, {{65535, 65535}}}}};
}
inline HeldMessage SampleHeld() {
  return {.changes = {{{LayerId(1), ExpertId(2)}, true}, {{LayerId(3), ExpertId(4)}, false}}};
}
inline HeatAskMessage SampleHeatAsk() {
  return {.layer = LayerId(2), .first_expert = 16, .expert_count = 48};
}
inline HeatMessage SampleHeat() {
  return {.layer = LayerId(2), .first_expert = 16, .values = {0.0f, 1.5f, 3e8f}};
}
inline StatsMessage SampleStats() { return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; }
inline LowerMessage SampleLower() { return {.arena_bytes = 5 << 20}; }
inline ErrorMessage SampleError() {
  return {.code = WireCode::kWrongPack, .text = "the daemon serves another pack"};
}

inline std::vector<std::vector<std::byte>> SamplePackets() {
  return {Encode(SampleHello(), 1),
          Encode(SampleWelcome(), 1),
          Encode(SampleFetch(), 2),
          Encode(SampleArrived(), 2),
          Encode(SampleLookAhead(), 0),
          Encode(SampleTraffic(), 0),
          Encode(SampleHeld(), 0),
          Encode(SampleHeatAsk(), 3),
          Encode(MessageType::kHeatIs, SampleHeat(), 3),
          Encode(MessageType::kSeed, SampleHeat(), 4),
          Encode(SampleStats(), 5),
          Encode(SampleLower(), 6),
          Encode(SampleError(), 7),
          EncodeEmpty(MessageType::kStatsAsk, 5),
          EncodeEmpty(MessageType::kDone, 6),
          EncodeEmpty(MessageType::kGoodbye, 0)};
}

// What the payload of `frame` decodes to, encoded again; the status of the refusal otherwise.
inline absl::StatusOr<std::vector<std::byte>> DecodeAndEncode(const Frame& frame) {
  const auto again = [&](auto decoded) -> absl::StatusOr<std::vector<std::byte>> {
    if (!decoded.ok()) return decoded.status();
    return Encode(*decoded, frame.request);
  };
  switch (frame.type) {
    case MessageType::kHello:
      return again(DecodeHello(frame.payload));
    case MessageType::kWelcome:
      return again(DecodeWelcome(frame.payload));
    case MessageType::kFetch:
      return again(DecodeFetch(frame.payload));
    case MessageType::kArrived:
      return again(DecodeArrived(frame.payload));
    case MessageType::kLookAhead:
      return again(DecodeLookAhead(frame.payload));
    case MessageType::kTraffic:
      return again(DecodeTraffic(frame.payload));
    case MessageType::kHeld:
      return again(DecodeHeld(frame.payload));
    case MessageType::kHeatAsk:
      return again(DecodeHeatAsk(frame.payload));
    case MessageType::kStatsAre:
      return again(DecodeStats(frame.payload));
    case MessageType::kLower:
      return again(DecodeLower(frame.payload));
    case MessageType::kError:
      return again(DecodeError(frame.payload));
    case MessageType::kHeatIs:
    case MessageType::kSeed: {
      const absl::StatusOr<HeatMessage> heat = DecodeHeat(frame.payload);
      if (!heat.ok()) return heat.status();
      return Encode(frame.type, *heat, frame.request);
    }
    case MessageType::kStatsAsk:
    case MessageType::kDone:
    case MessageType::kGoodbye:
      if (!frame.payload.empty()) return absl::InvalidArgumentError("it has no fields");
      return EncodeEmpty(frame.type, frame.request);
  }
  return absl::InvalidArgumentError("no such message");
}

}  // namespace hearth
