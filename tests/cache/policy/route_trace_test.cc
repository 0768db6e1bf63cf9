// The trace format: what is written reads back, and what is damaged is refused with a reason.
#include "cache/policy/route_trace.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/policy/trace_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/load.h"
#include "tests/cache/policy/random_trace.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// The example of TRACE.md.
RouteTrace Example() {
  return {.identity = {.layer_count = 2, .expert_count = 4, .ranks = 2},
          .text_begins = {0},
          .routes = {3, 1, 0, 2}};
}

std::string Refusal(const std::vector<std::byte>& bytes) {
  const auto trace = RouteTrace::Parse(bytes, "some.trace");
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("some.trace: "));
  return std::string(trace.status().message());
}

// The example with one change of its header and a checksum that is right.
std::vector<std::byte> With(const std::function<void(TraceHeader&)>& change) {
  std::vector<std::byte> bytes = Example().Serialise();
  auto header = Load<TraceHeader>(bytes.data());
  change(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  const uint32_t crc = Crc32c(std::span(bytes).first(bytes.size() - 4));
  std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
  return bytes;
}

TEST(RouteTraceTest, ReadsBackWhatWasWritten) {
  RouteTrace trace = MakeRandomTrace({.layers = 5, .experts = 40, .ranks = 4, .tokens = 77}, 1);
  trace.identity.model_xxh3_128 = "0123456789abcdef0123456789abcdef";
  trace.identity.tokenizer_xxh3_128 = "ffffffffffffffffffffffffffffffff";
  trace.identity.has_mtp = true;
  const auto read = RouteTrace::Parse(trace.Serialise(), "t");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->identity, trace.identity);
  EXPECT_EQ(read->text_begins, trace.text_begins);
  EXPECT_EQ(read->routes, trace.routes);
  EXPECT_EQ(read->token_count(), 77u);
  EXPECT_EQ(read->of(3, 2)[1], trace.routes[(3 * 5 + 2) * 4 + 1]);
}

TEST(RouteTraceTest, ATraceOfNoTokensReadsBack) {
  RouteTrace trace = Example();
  trace.routes.clear();
  trace.text_begins.clear();
  const auto read = RouteTrace::Parse(trace.Serialise(), "t");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->token_count(), 0u);
}

TEST(RouteTraceTest, TheBytesAreThoseOfTheDocument) {
  const std::vector<std::byte> bytes = Example().Serialise();
  ASSERT_EQ(bytes.size(), 132u);
  const uint8_t routes[] = {3, 0, 1, 0, 0, 0, 2, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), "HRTROUTE", 8), 0);
  EXPECT_EQ(Load<uint32_t>(bytes.data() + 8), 1u);
  EXPECT_EQ(Load<uint32_t>(bytes.data() + 16), 2u);
  EXPECT_EQ(Load<uint32_t>(bytes.data() + 20), 4u);
  EXPECT_EQ(Load<uint32_t>(bytes.data() + 24), 2u);
  EXPECT_EQ(Load<uint64_t>(bytes.data() + 32), 1u);
  EXPECT_EQ(Load<uint64_t>(bytes.data() + 40), 1u);
  EXPECT_EQ(std::memcmp(bytes.data() + 120, routes, sizeof(routes)), 0);
  EXPECT_EQ(Load<uint32_t>(bytes.data() + 128), 0x4DB96C98u);
}

TEST(RouteTraceTest, EveryCutIsRefused) {
  const std::vector<std::byte> bytes = Example().Serialise();
  for (size_t n = 0; n < bytes.size(); ++n) {
    Refusal(std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n)));
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(Refusal(longer), HasSubstr("bytes: found 133, expected 132"));
}

TEST(RouteTraceTest, EveryFlippedBitIsRefused) {
  const std::vector<std::byte> bytes = Example().Serialise();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    Refusal(damaged);
  }
}

TEST(RouteTraceTest, EachFieldOfTheHeaderIsChecked) {
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.magic[0] = 'X'; })), HasSubstr("not a trace"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.version = 2; })), HasSubstr("version: found 2"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.flags = 2; })), HasSubstr("flags: found 2"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.layer_count = 0; })), HasSubstr("layer_count"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.expert_count = 65537; })),
              HasSubstr("expert_count: found 65537, expected 1 to 65536"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.ranks = 5; })), HasSubstr("ranks: found 5"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.reserved = 1; })), HasSubstr("reserved"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.text_count = 0; })), HasSubstr("text_count"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.token_count = uint64_t{1} << 62; })),
              HasSubstr("bytes: found 132, expected more"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.token_count = 2; })),
              HasSubstr("bytes: found 132, expected 140"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.model_xxh3_128[0] = 'x'; })), HasSubstr("hash"));
  EXPECT_THAT(Refusal(With([](TraceHeader& h) { h.expert_count = 3; })),
              HasSubstr("routes[token 0][layer 0][rank 0]: found 3, expected an expert below 3"));
}

TEST(RouteTraceTest, TextsAndRoutesAreChecked) {
  RouteTrace trace = Example();
  trace.routes = {3, 1, 2, 2};
  EXPECT_THAT(Refusal(trace.Serialise()),
              HasSubstr("routes[token 0][layer 1][rank 1]: found 2, expected an expert that no"));
  trace = MakeRandomTrace({}, 0);
  trace.text_begins = {1};
  EXPECT_THAT(Refusal(trace.Serialise()), HasSubstr("text_begins[0]: found 1, expected 0"));
  trace.text_begins = {0, 60};
  EXPECT_THAT(Refusal(trace.Serialise()), HasSubstr("text_begins[1]: found 60"));
  trace.text_begins = {0, 20, 20};
  EXPECT_THAT(Refusal(trace.Serialise()), HasSubstr("text_begins[2]: found 20, expected more"));
}

}  // namespace
}  // namespace hearth
