// Routing profiles: what is written is read back, every damage is found and named in one line, and
// a profile of another model is refused with both identities.
#include "cache/policy/routing_profile.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/prng.h"
#include "runtime/base/sealed_json.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr JsonSeal kSeal = {.format = "hearth-routing-profile",
                            .noun = "profile",
                            .article = "a routing profile of Hearth"};

// Two layers and a draft layer of four experts, two per token.
RoutingIdentity SmallIdentity() {
  return {.model_xxh3_128 = std::string(32, 'a'),
          .tokenizer_xxh3_128 = std::string(32, 'b'),
          .layer_count = 2,
          .has_mtp = true,
          .expert_count = 4,
          .ranks = 2};
}

RoutingProfile Example() {
  return {.identity = SmallIdentity(),
          .domains = {
              {.name = "code", .token_count = 5, .counts = {5, 3, 2, 0, 1, 2, 3, 4, 4, 4, 0, 0}},
              {.name = "caf\xc3\xa9",
               .token_count = 1,
               .counts = {1, 1, 0, 0,  //
                          0, 0, 1, 1,  //
                          0, 0, 0, 0}}}};
}

absl::Status StatusOf(std::string_view text) {
  return RoutingProfile::FromJson(text, "dir/p.json").status();
}
std::string MessageOf(std::string_view text) { return std::string(StatusOf(text).message()); }

std::string_view FieldsOf(std::string_view text) {
  const size_t begin = text.find(',', text.find("profile_bytes")) + 1;
  return text.substr(begin, text.rfind(",\n  \"profile_xxh3_128\"") - begin);
}

TEST(RoutingProfile, ReadsWhatItWrites) {
  const std::string text = Example().ToJson();
  const absl::StatusOr<RoutingProfile> read = RoutingProfile::FromJson(text, "p");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->identity, SmallIdentity());
  EXPECT_EQ(read->token_count(), 6u);
  EXPECT_EQ(read->domains[1].name, "caf\xc3\xa9");
  EXPECT_THAT(read->domains[0].counts, ElementsAre(5, 3, 2, 0, 1, 2, 3, 4, 4, 4, 0, 0));
  EXPECT_THAT(read->Counts(), ElementsAre(6, 4, 2, 0, 1, 2, 4, 5, 4, 4, 0, 0));
  EXPECT_EQ(read->ToJson(), text) << "a text is a function of the profile alone";
  EXPECT_EQ(SealJson(kSeal, FieldsOf(text)), text) << "the test's own sealing agrees";
}

TEST(RoutingProfile, RefusesEveryFlippedBit) {
  std::string text = Example().ToJson();
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      ASSERT_FALSE(StatusOf(text).ok()) << "byte " << i << " bit " << bit;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  }
}

TEST(RoutingProfile, RefusesEveryCutWithTheSizes) {
  const std::string text = Example().ToJson();
  for (size_t length = 0; length < text.size(); ++length) {
    const absl::Status status = StatusOf(text.substr(0, length));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
    ASSERT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("found ", length)));
  }
  EXPECT_THAT(MessageOf(text + " "), HasSubstr(absl::StrCat("found ", text.size() + 1)));
}

TEST(RoutingProfile, RefusesForeignTextInOneLine) {
  Prng prng(5);
  std::string junk(4096, '\0');
  for (char& c : junk) c = static_cast<char>(prng.Next());
  // What other engines keep under such a name.
  const std::string foreign[] = {junk,
                                 "0 17 912\n0 18 4\n",
                                 "{\"expert_counts\": {\"0\": [1, 2, 3]}}",
                                 "[]",
                                 "null",
                                 std::string(1 << 16, '['),
                                 "{\n  \"format\": \"hearth-pack\",\n  \"manifest_bytes\": 12"};
  for (const std::string& text : foreign) {
    const std::string message = MessageOf(text);
    EXPECT_THAT(message, HasSubstr("dir/p.json: not a routing profile of Hearth"));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
}

TEST(RoutingProfile, NamesTheVersionItCannotRead) {
  for (const char* version : {"0", "2", "\"1\"", "-1"}) {
    const std::string fields =
        absl::StrReplaceAll(ToAbsl(FieldsOf(Example().ToJson())),
                            {{"\"version\": 1", absl::StrCat("\"version\": ", version)}});
    const absl::Status status = StatusOf(SealJson(kSeal, fields));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(absl::StrCat("version: expected 1, which this build reads, found ", version)));
  }
}

struct Change {
  const char* from;
  const char* to;
  const char* message;  // key, expected and found
};

// Each behind a checksum that is right: what a faulty writer would leave.
constexpr Change kChanges[] = {
    {"\"version\": 1,", "\"version\": 1, \"extra\": 1,",
     "expected only the keys of version 1, found \"extra\""},
    {"\"version\": 1,", "", "version: expected a value, found none"},
    {"\"version\": 1,", "\"version\": 1, \"version\": 1,", "key \"version\" occurs twice"},
    {"\"has_mtp\": true,", "\"has_mtp\": true, \"has_mtp\": false,", "occurs twice"},
    {"\"layer_count\": 2,", "", "layer_count: expected a value, found none"},
    {"\"has_mtp\": true", "\"has_mtp\": 1", "has_mtp: expected true or false, found 1"},
    {"aaaaaaaa", "AAAAAAAA", "model_xxh3_128: expected 32 lower-case hex digits, found \"AAAA"},
    {"\"layer_count\": 2", "\"layer_count\": 1",
     "counts: expected a list of 2 layers, found a list of 3"},
    {"\"layer_count\": 2", "\"layer_count\": 0", "layer_count: expected 1 to 1024, found 0"},
    {"\"layer_count\": 2", "\"layer_count\": 4294967295", "layer_count: expected 1 to 1024"},
    {"\"layer_count\": 2", "\"layer_count\": 4294967296", "layer_count: expected a whole number"},
    {"\"expert_count\": 4", "\"expert_count\": 5",
     "domains[0].counts[0]: expected a list of 5 counts, found a list of 4"},
    {"\"experts_per_token\": 2", "\"experts_per_token\": 5", "experts_per_token: expected 1 to 4"},
    {"\"experts_per_token\": 2", "\"experts_per_token\": 1",
     "domains[0].counts[0]: expected the sum 5"},
    {"\"token_count\": 6", "\"token_count\": 7",
     "token_count: expected 6 (the domains' sum), found 7"},
    {"\"token_count\": 5", "\"token_count\": 4", "domains[0].counts[0][0]: expected 0 to 4"},
    {"\"token_count\": 5", "\"token_count\": 6", "expected the sum 12"},
    {"\"token_count\": 5", "\"token_count\": 0", "domains[0].token_count: expected 1 to"},
    {"\"token_count\": 5", "\"token_count\": 18446744073709551615", "domains[0].token_count"},
    {"\"token_count\": 5", "\"token_count\": 1e3", "domains[0].token_count"},
    {"[5, 3, 2, 0]", "[5, 3, 3, 0]", "domains[0].counts[0]: expected the sum 10"},
    {"[5, 3, 2, 0]", "[-5, 3, 2, 0]",
     "domains[0].counts[0][0]: expected a whole number from 0 on, found -5"},
    {"[5, 3, 2, 0]", "[6, 2, 2, 0]",
     "domains[0].counts[0][0]: expected 0 to 5 (token_count), found 6"},
    {"[5, 3, 2, 0]", "[5.5, 3, 2, 0]", "domains[0].counts[0][0]: expected a whole number"},
    {"[5, 3, 2, 0]", "[5, 3, 2, 18446744073709551615]", "domains[0].counts[0][3]: expected 0 to 5"},
    {"[5, 3, 2, 0]", "[5, 3, 2, 99999999999999999999999]", "domains[0].counts[0][3]"},
    {"[5, 3, 2, 0]", "[5, 3, 2, 0, 0]", "domains[0].counts[0]: expected a list of 4 counts"},
    {"[5, 3, 2, 0]", "[5, 3, 2]", "domains[0].counts[0]: expected a list of 4 counts"},
    {"[5, 3, 2, 0]", "{}", "domains[0].counts[0]: expected a list of 4 counts, found an object"},
    {"[5, 3, 2, 0]", "[5, 3, 2, [0]]", "found a list of 1"},
    {"[5, 3, 2, 0]", "[5, 3, 2, [[[0]]]]", "nested too deeply"},
    {"[4, 4, 0, 0]", "[4, 3, 0, 0]",
     "domains[0].counts[2]: expected a sum that is a multiple of 2"},
    {"[4, 4, 0, 0]", "[5, 5, 2, 0]",
     "domains[0].counts[2]: expected a sum that is a multiple of 2, at most 10"},
    {"\"code\"", "\"caf\\u00e9\"", "domains[1].name: expected a name of its own"},
    {"\"code\"", "\"\"", "domains[0].name: expected 1 to 128 bytes"},
    {"\"code\"", "\"a\\nb\"", "domains[0].name: expected 1 to 128 bytes"},
    {"\"code\"", "7", "domains[0].name: expected text, found 7"},
    {"\"name\": \"code\"", "\"title\": \"code\"", "domains[0].name: expected a value"},
    {"\"name\": \"code\"", "\"name\": \"code\", \"more\": {}",
     "domains[0]: expected only the keys"},
    {"\"version\": 1,", "\"version\": 1,,", "not JSON"},
    {"caf", "\xff\xfe", "not JSON"},
};

TEST(RoutingProfile, RefusesWhatTheSchemaDoesNotHaveByKeyExpectedAndFound) {
  const std::string text = Example().ToJson();
  const std::string fields(FieldsOf(text));
  for (const Change& c : kChanges) {
    std::string changed = fields;
    const size_t at = changed.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    changed.replace(at, std::string_view(c.from).size(), c.to);
    const std::string message = MessageOf(SealJson(kSeal, changed));
    EXPECT_THAT(message, HasSubstr(c.message)) << c.from << " -> " << c.to;
    EXPECT_THAT(message, HasSubstr("dir/p.json: ")) << c.to;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << c.to;
  }
}

TEST(RoutingProfile, RefusesAnotherModelShowingBoth) {
  RoutingIdentity other = SmallIdentity();
  EXPECT_TRUE(Example().CheckIdentity(other, "p").ok());
  other.model_xxh3_128 = std::string(32, 'c');
  other.layer_count = 48;
  const absl::Status status = Example().CheckIdentity(other, "dir/p.json");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("dir/p.json"));
  EXPECT_THAT(message, HasSubstr(absl::StrCat("48+1 layers x 4 experts, 2 per token, model ",
                                              std::string(32, 'c'))));
  EXPECT_THAT(message, HasSubstr(absl::StrCat("2+1 layers x 4 experts, 2 per token, model ",
                                              std::string(32, 'a'))));
  for (const auto& change : {+[](RoutingIdentity& id) { id.tokenizer_xxh3_128[0] = 'c'; },
                             +[](RoutingIdentity& id) { id.has_mtp = false; },
                             +[](RoutingIdentity& id) { id.expert_count = 5; },
                             +[](RoutingIdentity& id) { id.ranks = 1; }}) {
    RoutingIdentity changed = SmallIdentity();
    change(changed);
    EXPECT_FALSE(Example().CheckIdentity(changed, "p").ok()) << changed.ToString();
  }
}

TEST(RoutingProfile, MergingAddsDomainsOfOneName) {
  RoutingProfile second = Example();
  second.domains[0].name = "prose";
  const RoutingProfile both[] = {Example(), second};
  const absl::StatusOr<RoutingProfile> merged = MergeProfiles(both);
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->domains.size(), 3u);
  EXPECT_EQ(merged->domains[0].name, "code");
  EXPECT_EQ(merged->domains[1].name, "caf\xc3\xa9");
  EXPECT_EQ(merged->domains[1].token_count, 2u);
  EXPECT_THAT(merged->domains[1].counts, ElementsAre(2, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0));
  EXPECT_EQ(merged->token_count(), 12u);
  EXPECT_TRUE(RoutingProfile::FromJson(merged->ToJson(), "m").ok());
}

TEST(RoutingProfile, MergingRefusesOtherModelsAndSumsOutOfBounds) {
  RoutingProfile other = Example();
  other.identity.model_xxh3_128 = std::string(32, 'c');
  const RoutingProfile models[] = {Example(), other};
  const absl::Status status = MergeProfiles(models).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("profile 2 of 2: is about another model"));

  RoutingProfile huge = Example();
  huge.domains.resize(1);
  huge.domains[0].token_count = kProfileTokensMax;
  const uint64_t t = kProfileTokensMax;
  huge.domains[0].counts = {t, t, 0, 0, t, 0, t, 0, 0, 0, 0, 0};
  ASSERT_TRUE(huge.Validate().ok()) << huge.Validate();
  EXPECT_TRUE(MergeProfiles({&huge, 1}).ok());
  const RoutingProfile sums[] = {huge, huge};
  EXPECT_EQ(MergeProfiles(sums).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(MergeProfiles({}).ok());

  std::vector<RoutingProfile> many(2, Example());
  for (uint32_t i = 0; i < kProfileDomainsMax; ++i) {
    many[0].domains.push_back({"d" + std::to_string(i), 1, Example().domains[1].counts});
  }
  EXPECT_THAT(std::string(MergeProfiles(many).status().message()),
              HasSubstr("domains: expected 1 to 256, found 258"));
}

TEST(RoutingProfile, DifferenceIsTotalVariationAndSharedHotExperts) {
  RoutingProfile a = Example();
  a.domains.resize(1);
  RoutingProfile b = a;
  absl::StatusOr<ProfileDifference> same = DiffProfiles(a, b);
  ASSERT_TRUE(same.ok());
  EXPECT_THAT(same->total_variation, ElementsAre(0, 0, 0));
  EXPECT_THAT(same->shared_hot, ElementsAre(1, 1, 1));
  // Layer 0: a's hottest two of four are 0 and 1; b's are 2 and 3. No drafts in b.
  b.domains[0].counts = {0, 2, 3, 5, 1, 2, 3, 4, 0, 0, 0, 0};
  const absl::StatusOr<ProfileDifference> d = DiffProfiles(a, b);
  ASSERT_TRUE(d.ok());
  EXPECT_THAT(d->total_variation[0], DoubleNear((5 + 1 + 1 + 5) / 20.0, 1e-12));
  EXPECT_THAT(d->shared_hot, ElementsAre(0, 1, 0));
  EXPECT_EQ(d->total_variation[1], 0);
  EXPECT_EQ(d->total_variation[2], 1);
  EXPECT_THAT(d->mean_total_variation, DoubleNear(0.3, 1e-12)) << "two layers can be compared";
  b.identity.ranks = 3;
  EXPECT_EQ(DiffProfiles(a, b).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace hearth
