// Messages: each reads back as it was written; whatever is cut, flipped or above a limit is refused
// with the message's name, and what is accepted means one thing only.
#include "cache/protocol/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "cache/protocol/wire.h"
#include "tests/cache/protocol/sample_messages.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

template <class Message, class Decoder>
void ExpectReadsBack(const Message& message, const std::vector<std::byte>& packet, MessageType type,
                     Decoder decode) {
  const absl::StatusOr<Frame> frame = DecodeFrame(packet);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->type, type);
  EXPECT_EQ(frame->version, kProtocolVersion);
  EXPECT_EQ(frame->request, 42u);
  const absl::StatusOr<Message> decoded = decode(frame->payload);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(*decoded == message) << MessageTypeName(type);
}

TEST(Messages, EachReadsBackAsItWasWritten) {
  ExpectReadsBack(SampleHello(), Encode(SampleHello(), 42), MessageType::kHello, DecodeHello);
  ExpectReadsBack(SampleWelcome(), Encode(SampleWelcome(), 42), MessageType::kWelcome,
                  DecodeWelcome);
  ExpectReadsBack(SampleFetch(), Encode(SampleFetch(), 42), MessageType::kFetch, DecodeFetch);
  ExpectReadsBack(SampleArrived(), Encode(SampleArrived(), 42), MessageType::kArrived,
                  DecodeArrived);
  ExpectReadsBack(SampleLookAhead(), Encode(SampleLookAhead(), 42), MessageType::kLookAhead,
                  DecodeLookAhead);
  ExpectReadsBack(SampleTraffic(), Encode(SampleTraffic(), 42), MessageType::kTraffic,
                  DecodeTraffic);
  ExpectReadsBack(SampleHeld(), Encode(SampleHeld(), 42), MessageType::kHeld, DecodeHeld);
  ExpectReadsBack(SampleHeatAsk(), Encode(SampleHeatAsk(), 42), MessageType::kHeatAsk,
                  DecodeHeatAsk);
  ExpectReadsBack(SampleHeat(), Encode(MessageType::kSeed, SampleHeat(), 42), MessageType::kSeed,
                  DecodeHeat);
  ExpectReadsBack(SampleStats(), Encode(SampleStats(), 42), MessageType::kStatsAre, DecodeStats);
  ExpectReadsBack(SampleLower(), Encode(SampleLower(), 42), MessageType::kLower, DecodeLower);
  ExpectReadsBack(SampleError(), Encode(SampleError(), 42), MessageType::kError, DecodeError);
}

// A cut packet is refused as it stands, and also when its length is made to agree with the cut.
TEST(Messages, EveryCutPacketIsRefused) {
  for (const std::vector<std::byte>& packet : SamplePackets()) {
    for (size_t bytes = 0; bytes < packet.size(); ++bytes) {
      std::vector<std::byte> cut(packet.begin(), packet.begin() + static_cast<ptrdiff_t>(bytes));
      EXPECT_FALSE(DecodeFrame(cut).ok());
      if (bytes < kFrameHeaderBytes) continue;
      const auto length = static_cast<uint32_t>(bytes);
      std::memcpy(&cut[8], &length, sizeof(length));
      const absl::StatusOr<Frame> frame = DecodeFrame(cut);
      ASSERT_TRUE(frame.ok()) << frame.status();
      EXPECT_EQ(DecodeAndEncode(*frame).status().code(), absl::StatusCode::kInvalidArgument)
          << MessageTypeName(frame->type) << " cut to " << bytes;
    }
  }
}

TEST(Messages, EveryPacketThatGoesOnIsRefused) {
  for (std::vector<std::byte> packet : SamplePackets()) {
    packet.push_back(std::byte{0});
    EXPECT_FALSE(DecodeFrame(packet).ok());
    const auto length = static_cast<uint32_t>(packet.size());
    std::memcpy(&packet[8], &length, sizeof(length));
    const absl::StatusOr<Frame> frame = DecodeFrame(packet);
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(DecodeAndEncode(*frame).status().code(), absl::StatusCode::kInvalidArgument)
        << MessageTypeName(frame->type);
  }
}

// A flipped bit is refused, or it makes another message that is written in exactly those bytes:
// nothing is skipped, and nothing means the same as something else.
TEST(Messages, EveryFlippedBitIsRefusedOrMeansSomethingElse) {
  uint32_t refused_count = 0, other_count = 0;
  for (const std::vector<std::byte>& packet : SamplePackets()) {
    for (size_t bit = 0; bit < packet.size() * 8; ++bit) {
      std::vector<std::byte> flipped = packet;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      const absl::StatusOr<Frame> frame = DecodeFrame(flipped);
      if (!frame.ok() || frame->version != kProtocolVersion) {
        ++refused_count;
        continue;
      }
      const absl::StatusOr<std::vector<std::byte>> again = DecodeAndEncode(*frame);
      if (!again.ok()) {
        ++refused_count;
        continue;
      }
      ++other_count;
      EXPECT_EQ(*again, flipped) << MessageTypeName(frame->type) << " bit " << bit;
    }
  }
  EXPECT_GT(refused_count, 1000u);
  EXPECT_GT(other_count, 1000u);
}

TEST(Messages, FramesSayWhatIsWrong) {
  std::vector<std::byte> packet = EncodeEmpty(MessageType::kGoodbye, 0);
  packet[0] = std::byte{'X'};
  EXPECT_THAT(DecodeFrame(packet).status().message(), HasSubstr("HRTD"));
  packet = EncodeEmpty(MessageType::kGoodbye, 0);
  packet[12] = std::byte{1};
  EXPECT_THAT(DecodeFrame(packet).status().message(), HasSubstr("reserved"));
  packet = EncodeEmpty(MessageType::kGoodbye, 0);
  packet[8] = std::byte{25};
  EXPECT_THAT(DecodeFrame(packet).status().message(), HasSubstr("length says 25"));
  packet.assign(kMessageBytesMax + 1, std::byte{0});
  EXPECT_THAT(DecodeFrame(packet).status().message(), HasSubstr("65537"));
}

TEST(Messages, AnotherVersionKeepsItsHeaderReadable) {
  std::vector<std::byte> packet = Encode(SampleHello(), 9);
  packet[4] = std::byte{2};
  packet[12] = std::byte{77};  // means something in that version
  const absl::StatusOr<Frame> frame = DecodeFrame(packet);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->version, 2);
  EXPECT_EQ(frame->request, 9u);
  EXPECT_TRUE(frame->payload.empty());
}

template <class Decoder>
absl::Status Refusal(const std::vector<std::byte>& packet, Decoder decode) {
  const absl::StatusOr<Frame> frame = DecodeFrame(packet);
  if (!frame.ok()) return absl::UnknownError("the frame itself is refused");
  return decode(frame->payload).status();
}

TEST(Messages, LimitsAndFieldsAreChecked) {
  FetchMessage fetch = SampleFetch();
  fetch.layer = LayerId(kWireLayersMax);
  EXPECT_THAT(Refusal(Encode(fetch, 1), DecodeFetch).message(), HasSubstr("FETCH: layer 4096"));
  fetch = SampleFetch();
  fetch.entries[0].expert = ExpertId(kWireExpertsMax);
  EXPECT_THAT(Refusal(Encode(fetch, 1), DecodeFetch).message(), HasSubstr("expert 65536"));
  fetch.entries.clear();
  EXPECT_THAT(Refusal(Encode(fetch, 1), DecodeFetch).message(), HasSubstr("0 entries"));
  fetch.entries.resize(kFetchEntriesMax + 1, {ExpertId(0), 0});
  EXPECT_THAT(Refusal(Encode(fetch, 1), DecodeFetch).message(), HasSubstr("1025 entries"));

  TrafficMessage traffic = SampleTraffic();
  std::swap(traffic.layers[0].experts[0], traffic.layers[0].experts[1]);
  EXPECT_THAT(Refusal(Encode(traffic, 1), DecodeTraffic).message(), HasSubstr("ascending"));
  traffic = SampleTraffic();
  traffic.layers[0].experts[1] = traffic.layers[0].experts[0];
  EXPECT_THAT(Refusal(Encode(traffic, 1), DecodeTraffic).message(), HasSubstr("ascending"));
  traffic = SampleTraffic();
  traffic.layers[0].kind = 2;
  EXPECT_THAT(Refusal(Encode(traffic, 1), DecodeTraffic).message(), HasSubstr("kind 2"));

  HeatMessage heat = SampleHeat();
  for (const float bad :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    heat.values[1] = bad;
    EXPECT_THAT(Refusal(Encode(MessageType::kSeed, heat, 1), DecodeHeat).message(),
                HasSubstr("finite"));
  }
  HeatAskMessage ask = SampleHeatAsk();
  ask.expert_count = 0;
  EXPECT_FALSE(Refusal(Encode(ask, 1), DecodeHeatAsk).ok());
  ask.expert_count = kHeatValuesMax + 1;
  EXPECT_FALSE(Refusal(Encode(ask, 1), DecodeHeatAsk).ok());
}

// A count that promises more than the packet has costs no memory and no time.
TEST(Messages, CountsBeyondThePacketAreRefused) {
  std::vector<std::byte> packet = Encode(SampleTraffic(), 1);
  const size_t experts_at = kFrameHeaderBytes + 1 + 4 + 4 + 4 + 1;
  const uint32_t huge = 0xFFFFFFFF;
  std::memcpy(&packet[experts_at], &huge, sizeof(huge));
  EXPECT_THAT(Refusal(packet, DecodeTraffic).message(), HasSubstr("4294967295 entries"));
}

TEST(Messages, LargestOnesFitAPacket) {
  FetchMessage fetch{.layer = LayerId(0), .entries = {}};
  fetch.entries.resize(kFetchEntriesMax, {ExpertId(1), 1});
  EXPECT_LE(Encode(fetch, 1).size(), kMessageBytesMax);
  ArrivedMessage arrived{.entries = {}, .text = std::string(kTextBytesMax, 'x')};
  arrived.entries.resize(kFetchEntriesMax);
  EXPECT_LE(Encode(arrived, 1).size(), kMessageBytesMax);
  HeldMessage held;
  held.changes.resize(kHeldChangesMax);
  EXPECT_LE(Encode(held, 1).size(), kMessageBytesMax);
  HeatMessage heat{.layer = LayerId(0), .values = std::vector<float>(kHeatValuesMax)};
  EXPECT_LE(Encode(MessageType::kHeatIs, heat, 1).size(), kMessageBytesMax);
  LookAheadMessage ahead{.layer = LayerId(0), .experts = {}};
  ahead.experts.resize(kLookAheadEntriesMax, ExpertId(0));
  EXPECT_LE(Encode(ahead, 1).size(), kMessageBytesMax);
}

// A text above its limit is cut by the writer, never by chance elsewhere.
TEST(Messages, LongTextsAreCutWhereTheyAreWritten) {
  const ErrorMessage error{.code = WireCode::kBusy, .text = std::string(100'000, 'a')};
  const std::vector<std::byte> packet = Encode(error, 1);
  const absl::StatusOr<ErrorMessage> decoded =
      DecodeError(std::span<const std::byte>(packet).subspan(kFrameHeaderBytes));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->text.size(), kTextBytesMax);
}

// The example of PROTOCOL.md is what the encoder writes.
TEST(Messages, TheExampleOfTheDocumentIsTrue) {
  std::ifstream in(std::string(HEARTH_SOURCE_DIR) + "/cache/protocol/PROTOCOL.md");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const size_t at = text.find("```hex\n");
  ASSERT_NE(at, std::string::npos);
  std::string digits;
  bool comment = false;
  for (size_t i = at + 7; text.compare(i, 3, "```") != 0; ++i) {
    if (text[i] == '|') comment = true;
    if (text[i] == '\n') comment = false;
    if (!comment && std::isxdigit(static_cast<unsigned char>(text[i])) != 0) digits += text[i];
  }
  std::string wanted;
  for (const std::byte b : Encode(SampleFetch(), 2)) {
    constexpr char kHex[] = "0123456789abcdef";
    wanted += kHex[std::to_integer<int>(b) >> 4];
    wanted += kHex[std::to_integer<int>(b) & 15];
  }
  EXPECT_EQ(digits, wanted);
}

}  // namespace
}  // namespace hearth
