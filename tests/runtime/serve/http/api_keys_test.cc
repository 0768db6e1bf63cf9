// Keys at rest and at the door.
#include "runtime/serve/http/api_keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::array<uint8_t, kApiKeyRandomBytes> Random(uint8_t seed) {
  std::array<uint8_t, kApiKeyRandomBytes> random{};
  for (size_t i = 0; i < random.size(); ++i) random[i] = static_cast<uint8_t>(seed + i);
  return random;
}

TEST(ApiKeys, AMadeKeyOpensAndItsLineDoesNotHoldIt) {
  const MadeApiKey made = *MakeApiKey("alice", Random(0));
  EXPECT_EQ(made.key, "hearth-000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  // printf '\x20...\x2f''hearth-0001...' | sha256sum
  EXPECT_THAT(made.line, HasSubstr("alice:sha256$202122232425262728292a2b2c2d2e2f$"));
  EXPECT_THAT(made.line, Not(HasSubstr("0102030405060708")));
  const ApiKeys keys = *ApiKeys::Parse(absl::StrCat("# team\n\n", made.line, "\r\n"));
  EXPECT_EQ(keys.count(), 1u);
  EXPECT_EQ(keys.Find(made.key), "alice");
  EXPECT_EQ(keys.Find(""), std::nullopt);
  EXPECT_EQ(keys.Find(made.key.substr(1)), std::nullopt);
  std::string other = made.key;
  other.back() ^= 1;
  EXPECT_EQ(keys.Find(other), std::nullopt);
}

TEST(ApiKeys, TheHashIsThatOfSaltAndKey) {
  // python3 -c "import hashlib;print(hashlib.sha256(bytes(16)+b'secret').hexdigest())"
  const std::string line =
      absl::StrCat("k:sha256$00000000000000000000000000000000$",
                   "36fcbdc4799378811fe3603f327fe626b629fdc63c0958cc7ee6fce2183752cb");
  EXPECT_EQ(ApiKeys::Parse(line)->Find("secret"), "k");
}

TEST(ApiKeys, EveryBadLineIsNamedByItsNumberOnly) {
  const std::string good = MakeApiKey("good", Random(0))->line;
  for (const std::string& bad :
       {std::string("no colon"), std::string(":sha256$00$00"), std::string("a b:sha256$00$00"),
        std::string("a:plain-secret"), std::string("a:sha256$00$00"),
        absl::StrCat("b", good.substr(4, good.size() - 5)), absl::StrCat(good, "0"),
        absl::StrCat("c:md5$", good.substr(12)), good, std::string(65, 'n') + good.substr(4)}) {
    const absl::Status status = ApiKeys::Parse(absl::StrCat(good, "\n\n", bad)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 3: ")) << bad;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("plain-secret")));
  }
  EXPECT_EQ(ApiKeys::Parse("# nobody\n").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ApiKeys, TooManyKeysAreRefused) {
  std::string text;
  for (uint32_t i = 0; i < ApiKeys::kKeyCountMax + 1; ++i)
    absl::StrAppend(&text, MakeApiKey(absl::StrCat("k", i), Random(3))->line, "\n");
  EXPECT_THAT(std::string(ApiKeys::Parse(text).status().message()), HasSubstr("1024"));
}

TEST(ApiKeys, AFileThatOthersMayWriteIsRefused) {
  const std::string path = absl::StrCat(testing::TempDir(), "hearth_keys_", ::getpid());
  std::ofstream(path) << MakeApiKey("alice", Random(0))->line << "\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(ApiKeys::Load(path).ok());
  ASSERT_EQ(chmod(path.c_str(), 0622), 0);
  const absl::Status status = ApiKeys::Load(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  std::remove(path.c_str());
  EXPECT_EQ(ApiKeys::Load(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(ApiKeys, NamesAreCheckedAndRandomIsRandom) {
  EXPECT_FALSE(MakeApiKey("", Random(0)).ok());
  EXPECT_FALSE(MakeApiKey("a:b", Random(0)).ok());
  std::array<uint8_t, 48> first{}, second{};
  ASSERT_TRUE(FillFromSystemRandom(first).ok());
  ASSERT_TRUE(FillFromSystemRandom(second).ok());
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace hearth
