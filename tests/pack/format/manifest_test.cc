// manifest.json: what is written is read back, every damage is found, and nothing that is not in
// the schema passes.
#include "pack/format/manifest.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/sealed_manifest.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  Manifest m;
  m.geometry = SyntheticGeometry({.hidden = 64, .layer_count = 5});
  m.geometry.ngram.multipliers = {4295158889763781u, 17440218147737327u};
  m.files = {{"dense.bin", 1234, std::string(32, 'a')},
             {"experts.bin", 1u << 30, std::string(32, '0')}};
  m.source_dialect = "bf16";
  m.source_xxh3_128 = std::string(32, '1');
  m.tokenizer_xxh3_128 = std::string(32, '2');
  m.dense = "q8_0";
  m.experts = "bf16";
  m.made_by = "hearth \"quoted\" \xff";
  return m;
}

std::string MessageOf(std::string_view text) {
  return std::string(Manifest::FromJson(text, "dir/manifest.json").status().message());
}

TEST(Manifest, ReadsWhatItWrites) {
  const std::string text = Example().ToJson();
  const auto read = Manifest::FromJson(text, "manifest.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), text)
      << "every field is in the text, so equal texts are equal manifests";
  EXPECT_EQ(read->geometry.ngram.multipliers[1], 17440218147737327u);
  EXPECT_EQ(read->geometry.norm_epsilon, 1e-6f);
  EXPECT_EQ(read->geometry.gdn.output_gate, OutputGate::kSilu);
  EXPECT_EQ(read->geometry.layers[3], MixerKind::kQsa);
  EXPECT_EQ(read->files[1].bytes, 1u << 30);
  EXPECT_EQ(SealManifest(FieldsOfManifest(text)), text) << "the test's own sealing agrees";
}

TEST(Manifest, RefusesEveryFlippedBit) {
  std::string text = Example().ToJson();
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      ASSERT_FALSE(Manifest::FromJson(text, "m").ok()) << "byte " << i << " bit " << bit;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  }
}

TEST(Manifest, RefusesEveryCutWithTheSizes) {
  const std::string text = Example().ToJson();
  for (size_t length = 0; length < text.size(); ++length) {
    const std::string message = MessageOf(text.substr(0, length));
    ASSERT_THAT(message, HasSubstr(absl::StrCat("found ", length))) << length;
    if (length > 60) {  // past the line that says how long it is
      ASSERT_THAT(message, HasSubstr(absl::StrCat("expected ", text.size()))) << length;
    }
  }
  EXPECT_THAT(MessageOf(text + " "), HasSubstr(absl::StrCat("found ", text.size() + 1)));
}

TEST(Manifest, NamesTheVersionItCannotRead) {
  std::string fields(FieldsOfManifest(Example().ToJson()));
  fields = absl::StrReplaceAll(fields, {{"\"version\": 1", "\"version\": 7"}});
  const auto read = Manifest::FromJson(SealManifest(fields), "m");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("version 7, this build reads 1"));
}

TEST(Manifest, RefusesWhatTheSchemaDoesNotHave) {
  const std::string fields(FieldsOfManifest(Example().ToJson()));
  const struct {
    std::string_view from;
    std::string_view to;
    std::string_view message;
  } cases[] = {
      {"\"made_by\"", "\"maker\"", "made_by"},
      {"\"version\": 1,", "\"version\": 1, \"extra\": 1,", "unknown key \"extra\""},
      {"\"version\": 1,", "\"version\": 1, \"version\": 1,", "\"version\" occurs twice"},
      {"\"head_dim\": 8,", "\"head_dim\": 8, \"more\": {},", "unknown key \"more\""},
      {"\"hidden\": 64", "\"hidden\": -64", "geometry.hidden"},
      {"\"hidden\": 64", "\"hidden\": 6.5", "geometry.hidden"},
      {"\"hidden\": 64", "\"hidden\": 5000000000", "geometry.hidden"},
      {"\"hidden\": 64", "\"hidden\": \"64\"", "geometry.hidden"},
      {"\"hidden\": 64", "\"hidden\": 0", "hidden"},
      {"\"hidden\": 64", "\"hidden\": [[[[[[[64]]]]]]]", "nested"},
      {"\"qsa\"", "\"mamba\"", "mamba"},
      {"\"silu\"", "\"relu\"", "relu"},
      {"\"has_mtp\": true", "\"has_mtp\": 1", "has_mtp"},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": 1e999", "not JSON"},
      {"dense.bin", "../dense.bin", "name or hash"},
      {"dense.bin", "manifest.json", "name or hash"},
      {"dense.bin", "experts.bin", "name or hash"},
      {"aaaaaaaa", "AAAAAAAA", "name or hash"},
      {"\"bytes\": 1234,", "\"bytes\": 1234", "not JSON"},
  };
  for (const auto& c : cases) {
    const std::string changed =
        absl::StrReplaceAll(fields, {{absl::string_view(c.from.data(), c.from.size()),
                                      absl::string_view(c.to.data(), c.to.size())}});
    ASSERT_NE(changed, fields) << c.from;
    const std::string message = MessageOf(SealManifest(changed));
    EXPECT_THAT(message, HasSubstr(std::string(c.message))) << c.to;
    EXPECT_THAT(message, HasSubstr("dir/manifest.json")) << c.to;
  }
}

TEST(Manifest, RefusesForeignText) {
  EXPECT_THAT(MessageOf("{\"format\": \"other\"}" + std::string(200, ' ')),
              HasSubstr("not the manifest"));
  EXPECT_THAT(MessageOf(std::string(300, '\0')), HasSubstr("not the manifest"));
}

}  // namespace
}  // namespace hearth
