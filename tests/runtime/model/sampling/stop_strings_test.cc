// Stop strings in text that arrives in pieces, against a search of the whole text.
#include "runtime/model/sampling/stop_strings.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/model/sampling/finish_reason.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

StopStringMatcher Make(const std::vector<std::string>& stops) {
  absl::StatusOr<StopStringMatcher> matcher = StopStringMatcher::Create(stops);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *std::move(matcher);
}

struct Delivery {
  std::string text;
  bool stopped = false;
  bool operator==(const Delivery&) const = default;
  friend void PrintTo(const Delivery& d, std::ostream* os) {
    *os << '"' << d.text << (d.stopped ? "\" stopped" : "\" open");
  }
};

Delivery Stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStringMatcher matcher = Make(stops);
  Delivery delivery;
  for (const std::string& piece : pieces) matcher.Push(piece, delivery.text);
  matcher.Finish(delivery.text);
  delivery.stopped = matcher.stopped();
  return delivery;
}

TEST(StopStrings, FalseStartThenMatch) {
  EXPECT_EQ(Stream({"abd"}, {"a", "b", "c", "a", "b", "d", "x"}), (Delivery{"abc", true}));
  EXPECT_EQ(Stream({"aab"}, {"a", "a", "a", "b"}), (Delivery{"a", true}));
}

TEST(StopStrings, MatchThatEndsInsideAPiece) {
  StopStringMatcher matcher = Make({"END"});
  std::string text;
  EXPECT_FALSE(matcher.Push("one E", text));
  EXPECT_EQ(text, "one ");
  EXPECT_EQ(matcher.held_bytes(), 1u);
  EXPECT_TRUE(matcher.Push("NDtwo", text));
  EXPECT_EQ(text, "one ");
  EXPECT_EQ(matcher.piece_bytes_used(), 2u);
  EXPECT_TRUE(matcher.Push("three", text));
  matcher.Finish(text);
  EXPECT_EQ(text, "one ");
}

TEST(StopStrings, TheFirstToBeCompleteWinsAndOfThoseTheLongest) {
  EXPECT_EQ(Stream({"abcd", "bc"}, {"xabcd"}), (Delivery{"xa", true}));
  EXPECT_EQ(Stream({"c", "bc", "abc"}, {"xabc"}), (Delivery{"x", true}));
  StopStringMatcher matcher = Make({"c", "bc", "bc"});
  std::string text;
  EXPECT_TRUE(matcher.Push("abc", text));
  EXPECT_EQ(matcher.stop_index(), 1u);
}

TEST(StopStrings, HalfMatchAtTheEndIsDelivered) {
  EXPECT_EQ(Stream({"</done>"}, {"text </do"}), (Delivery{"text </do", false}));
  EXPECT_EQ(Stream({"abd", "bcx"}, {"abc"}), (Delivery{"abc", false}));
}

TEST(StopStrings, NothingOfAStopIsDeliveredEarly) {
  StopStringMatcher matcher = Make({"\n\nUser:"});
  std::string text;
  for (const char c : std::string("hi\n\nUser")) {
    EXPECT_FALSE(matcher.Push(std::string(1, c), text));
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_TRUE(matcher.Push(":", text));
  EXPECT_EQ(text, "hi");
}

TEST(StopStrings, MultiByteCharacters) {
  EXPECT_EQ(Stream({"終わり"}, {"話の終", "わりです"}), (Delivery{"話の", true}));
  EXPECT_EQ(Stream({"終わり"}, {"終わる"}), (Delivery{"終わる", false}));
  EXPECT_EQ(Stream({"🙂"}, {"ok \xF0\x9F", "\x99\x82!"}), (Delivery{"ok ", true}));
}

TEST(StopStrings, NoStopsPassEverything) {
  EXPECT_EQ(Stream({}, {"a", "", "bc"}), (Delivery{"abc", false}));
}

TEST(StopStrings, MatcherIsReusableAfterReset) {
  StopStringMatcher matcher = Make({"ab"});
  std::string text;
  EXPECT_TRUE(matcher.Push("ab", text));
  matcher.Reset();
  EXPECT_FALSE(matcher.stopped());
  EXPECT_FALSE(matcher.Push("xa", text));
  matcher.Reset();
  EXPECT_FALSE(matcher.Push("b", text));  // the "a" of the former text is gone
  EXPECT_EQ(text, "xb");
}

TEST(StopStrings, EmptyAndOversizedStopsAreRefused) {
  const auto refused = [](const std::vector<std::string>& stops) {
    return std::string(StopStringMatcher::Create(stops).status().message());
  };
  EXPECT_THAT(refused({"a", ""}), HasSubstr("stop string 1 is empty"));
  EXPECT_THAT(refused(std::vector<std::string>(257, "a")), HasSubstr("257"));
  EXPECT_THAT(refused({std::string(65536, 'a'), "b"}), HasSubstr("65536"));
  EXPECT_TRUE(StopStringMatcher::Create(std::vector<std::string>{std::string(65536, 'a')}).ok());
}

TEST(StopStrings, HundredStops) {
  std::vector<std::string> stops;
  for (int i = 0; i < 100; ++i) stops.push_back("<stop " + std::to_string(i) + ">");
  EXPECT_EQ(Stream(stops, {"a <st", "op 9", "9", "> b"}), (Delivery{"a ", true}));
  EXPECT_EQ(Stream(stops, {"a <stop 100> b"}), (Delivery{"a <stop 100> b", false}));
}

// The definition, over the whole text at once.
Delivery Search(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopStrings, BehavesLikeASearchHoweverTheTextIsCut) {
  uint32_t stopped_count = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Prng prng(seed);
    const uint64_t letters = 2 + prng.Below(2);
    const auto random_text = [&](uint64_t bytes) {
      std::string s(bytes, 'a');
      for (char& c : s) c = static_cast<char>('a' + prng.Below(letters));
      return s;
    };
    std::vector<std::string> stops(1 + prng.Below(5));
    for (std::string& stop : stops) stop = random_text(1 + prng.Below(7));
    const std::string text = random_text(prng.Below(60));
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = prng.Below(5);
      pieces.push_back(text.substr(at, bytes));
      at += bytes;
    }
    const Delivery want = Search(stops, text);
    ASSERT_EQ(Stream(stops, pieces), want) << "seed " << seed;
    stopped_count += want.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped_count, 300u);
  EXPECT_LT(stopped_count, 2900u);
}

TEST(FinishReason, NamesAreThoseOfTheApi) {
  EXPECT_STREQ(FinishReasonName(FinishReason::kStop), "stop");
  EXPECT_STREQ(FinishReasonName(FinishReason::kLength), "length");
  EXPECT_STREQ(FinishReasonName(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace hearth
