// Goal: every file that Hearth does not read is refused with a Status that names path, key, what
// was expected and what was found. Method: one change at a time to a file that is accepted.
#include "runtime/model/tokenizer/tokenizer_json.h"

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/prng.h"
#include "runtime/model/tokenizer/byte_alphabet.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string StandInOf(uint8_t byte) {
  std::string text;
  for (char32_t c = 0; c < kByteAlphabetEnd; ++c) {
    if (ByteOfStandIn(c) == byte) AppendUtf8(c, text);
  }
  return text;
}

// The 256 bytes as ids 0..255, "ab" 256, "abc" 257, and the added tokens <s> 258 and <t> 259.
json SmallFile() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[StandInOf(static_cast<uint8_t>(byte))] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["<s>"] = 258;
  const auto added = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(258, "<s>"), added(259, "<t>")}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", R"(\p{L}+|\s+)"}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              {{"type", "ByteLevel"},
               {"add_prefix_space", false},
               {"trim_offsets", true},
               {"use_regex", false}}}}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", {{"a", "b"}, "ab c"}}}}};
}

absl::StatusOr<Tokenizer> Load(const json& file) {
  return Tokenizer::FromJson(file.dump(), "dir/tokenizer.json");
}

TEST(TokenizerJson, TheSmallFileIsAccepted) {
  const absl::StatusOr<Tokenizer> tokenizer = Load(SmallFile());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->Encode("abc<t>ab", SpecialTokens::kParse),
              testing::ElementsAre(257, 259, 256));
  EXPECT_EQ(tokenizer->vocab_count(), 260u);
}

TEST(TokenizerJson, AbsentOptionalMembersHaveTheReferenceDefaults) {
  json file = SmallFile();
  for (const char* key : {"version", "truncation", "padding", "normalizer", "post_processor",
                          "decoder", "added_tokens"}) {
    file.erase(key);
  }
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                          "fuse_unk", "byte_fallback", "ignore_merges"}) {
    file["model"].erase(key);
  }
  const absl::StatusOr<Tokenizer> tokenizer = Load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_count(), 259u);
  EXPECT_EQ(tokenizer->FindToken("<s>"), std::nullopt);
}

TEST(TokenizerJson, OfEqualMergesTheLastCounts) {
  json file = SmallFile();
  file["model"]["vocab"]["bc"] = 260;
  file["model"]["merges"] = {"a b", "b c", "a b"};
  const absl::StatusOr<Tokenizer> tokenizer = Load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->Encode("abc", SpecialTokens::kParse), testing::ElementsAre('a', 260));
}

struct Refusal {
  const char* name;
  std::function<void(json&)> change;
  absl::StatusCode code;
  const char* message;  // after "dir/tokenizer.json: "
};

const absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;
const absl::StatusCode kUnsupported = absl::StatusCode::kUnimplemented;

std::vector<Refusal> StructureRefusals() {
  return {
      {"array", [](json& d) { d = json::array(); }, kBad,
       "the file: expected an object, found an array"},
      {"version", [](json& d) { d["version"] = "2.0"; }, kUnsupported,
       "version: expected \"1.0\", found 2.0"},
      {"unknown_member", [](json& d) { d["extra"] = 1; }, kUnsupported,
       "extra: expected no such member, found one"},
      {"truncation",
       [](json& d) {
         d["truncation"] = {{"max_length", 4}};
       },
       kUnsupported, "truncation: expected null, found an object"},
      {"padding", [](json& d) { d["padding"] = "x"; }, kUnsupported,
       "padding: expected null, found \"x\""},
      {"normalizer", [](json& d) { d["normalizer"]["type"] = "NFKC"; }, kUnsupported,
       "normalizer: expected null, NFC or a Sequence of NFC, found NFKC"},
      {"normalizer_sequence",
       [](json& d) {
         d["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
       },
       kUnsupported,
       "normalizer.normalizers[1]: expected null, NFC or a Sequence of NFC, found Lowercase"},
      {"nested_sequence",
       [](json& d) {
         const json inner = {{"type", "Sequence"}, {"normalizers", json::array()}};
         d["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array({inner})}};
       },
       kUnsupported, "normalizer.normalizers[0]: expected"},
      {"no_pre_tokenizer", [](json& d) { d["pre_tokenizer"] = nullptr; }, kUnsupported,
       "pre_tokenizer: expected ByteLevel or a Sequence of Split and ByteLevel, found null"},
      {"whitespace_split",
       [](json& d) {
         d["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       kUnsupported, "pre_tokenizer.type: expected ByteLevel or a Sequence"},
      {"three_parts",
       [](json& d) {
         json& parts = d["pre_tokenizer"]["pretokenizers"];
         parts.push_back(parts[1]);
       },
       kUnsupported, "pre_tokenizer.pretokenizers: expected two: Split, then ByteLevel, found 3"},
      {"behavior", [](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       kUnsupported, "pre_tokenizer.pretokenizers[0].behavior: expected Isolated, found Removed"},
      {"invert", [](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; },
       kUnsupported, "pre_tokenizer.pretokenizers[0].invert: expected false, found true"},
      {"string_pattern",
       [](json& d) {
         d["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
       },
       kUnsupported, "pre_tokenizer.pretokenizers[0].pattern.String: expected no such member"},
      {"prefix_space",
       [](json& d) { d["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
       kUnsupported, "pre_tokenizer.pretokenizers[1].add_prefix_space: expected false, found true"},
      {"regex_twice", [](json& d) { d["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; },
       kUnsupported, "pre_tokenizer.pretokenizers[1].use_regex: expected false, found true"},
      {"template",
       [](json& d) {
         d["post_processor"] = {{"type", "TemplateProcessing"}};
       },
       kUnsupported, "post_processor.type: expected ByteLevel, found TemplateProcessing"},
      {"decoder",
       [](json& d) {
         d["decoder"] = {{"type", "Metaspace"}};
       },
       kUnsupported, "decoder.type: expected ByteLevel, found Metaspace"},
      {"pattern",
       [](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a$"; },
       kUnsupported,
       "pre_tokenizer: pattern: expected a construct this build translates, found a bare $"},
  };
}

std::vector<Refusal> AddedTokenRefusals() {
  return {
      {"lstrip", [](json& d) { d["added_tokens"][1]["lstrip"] = true; }, kUnsupported,
       "added_tokens[1].lstrip: expected false, found true"},
      {"rstrip", [](json& d) { d["added_tokens"][0]["rstrip"] = true; }, kUnsupported,
       "added_tokens[0].rstrip: expected false, found true"},
      {"single_word", [](json& d) { d["added_tokens"][0]["single_word"] = true; }, kUnsupported,
       "added_tokens[0].single_word: expected false, found true"},
      {"normalized", [](json& d) { d["added_tokens"][0]["normalized"] = true; }, kUnsupported,
       "added_tokens[0].normalized: expected false, found true"},
      {"no_special", [](json& d) { d["added_tokens"][0].erase("special"); }, kBad,
       "added_tokens[0].special: expected true or false, found nothing"},
      {"negative_id", [](json& d) { d["added_tokens"][1]["id"] = -1; }, kBad,
       "added_tokens[1].id: expected an id below 4194304, found -1"},
      {"huge_id", [](json& d) { d["added_tokens"][1]["id"] = 1 << 22; }, kBad,
       "added_tokens[1].id: expected an id below 4194304, found 4194304"},
      {"empty_content", [](json& d) { d["added_tokens"][1]["content"] = ""; }, kBad,
       "added_tokens[1].content: expected 1 to 1024 bytes, found 0 bytes"},
      {"long_content", [](json& d) { d["added_tokens"][1]["content"] = std::string(1025, 'x'); },
       kBad, "added_tokens[1].content: expected 1 to 1024 bytes, found 1025 bytes"},
      {"same_content", [](json& d) { d["added_tokens"][1]["content"] = "<s>"; }, kBad,
       "added_tokens[1].content: expected a content of its own, found that of added_tokens[0]"},
      {"same_id", [](json& d) { d["added_tokens"][1]["id"] = 258; }, kBad,
       "added_tokens[1].id: expected an id of its own, found 258, also of added_tokens[0]"},
      {"id_of_a_word", [](json& d) { d["added_tokens"][1]["id"] = 256; }, kBad,
       "added_tokens[1].id: expected an id that no other token has, found 256, which is \"ab\""},
      {"other_id_in_vocab", [](json& d) { d["added_tokens"][1]["content"] = "abc"; }, kBad,
       "added_tokens[1].id: expected its id in model.vocab, 257, found 259"},
      {"hole", [](json& d) { d["added_tokens"][1]["id"] = 261; }, kBad,
       "model.vocab: expected ids 0 to 261, found no token with id 259"},
      {"single_byte",
       [](json& d) {
         d["added_tokens"][1]["content"] = "a";
         d["added_tokens"][1]["id"] = 97;
       },
       kUnsupported,
       "added_tokens[1].content: expected more than one byte of model.vocab, found \"a\""},
  };
}

std::vector<Refusal> ModelRefusals() {
  return {
      {"no_model", [](json& d) { d.erase("model"); }, kBad,
       "model: expected an object, found nothing"},
      {"type", [](json& d) { d["model"]["type"] = "Unigram"; }, kUnsupported,
       "model.type: expected \"BPE\", found Unigram"},
      {"unknown", [](json& d) { d["model"]["extra"] = 1; }, kUnsupported,
       "model.extra: expected no such member, found one"},
      {"dropout", [](json& d) { d["model"]["dropout"] = 0.5; }, kUnsupported,
       "model.dropout: expected null, found 0.5"},
      {"unk", [](json& d) { d["model"]["unk_token"] = "<unk>"; }, kUnsupported,
       "model.unk_token: expected null, found \"<unk>\""},
      {"suffix", [](json& d) { d["model"]["end_of_word_suffix"] = "</w>"; }, kUnsupported,
       "model.end_of_word_suffix: expected null or \"\", found </w>"},
      {"byte_fallback", [](json& d) { d["model"]["byte_fallback"] = true; }, kUnsupported,
       "model.byte_fallback: expected false, found true"},
      {"ignore_merges_number", [](json& d) { d["model"]["ignore_merges"] = 1; }, kBad,
       "model.ignore_merges: expected true or false, found 1"},
      {"vocab_array", [](json& d) { d["model"]["vocab"] = json::array(); }, kBad,
       "model.vocab: expected an object, found an array"},
      {"duplicate_id", [](json& d) { d["model"]["vocab"]["abc"] = 256; }, kBad,
       "model.vocab: expected one token with id 256, found \"ab\" and \"abc\""},
      {"text_id", [](json& d) { d["model"]["vocab"]["abc"] = "257"; }, kBad,
       "model.vocab[\"abc\"]: expected an id below 4194304, found \"257\""},
      {"vocab_hole",
       [](json& d) {
         d["model"]["vocab"].erase("abc");
         d["model"]["merges"] = json::array();
       },
       kBad, "model.vocab: expected ids 0 to 259, found no token with id 257"},
      {"empty_token", [](json& d) { d["model"]["vocab"][""] = 260; }, kBad,
       "expected a token of some bytes, found none"},
      {"missing_byte",
       [](json& d) {
         json& vocab = d["model"]["vocab"];
         vocab.erase("!");
         vocab["!!"] = 33;
       },
       kBad, "model.vocab: expected a token for every single byte, found none for byte 0x21"},
      {"not_byte_level", [](json& d) { d["model"]["vocab"]["\u2581the"] = 260; }, kUnsupported,
       "model.vocab, id 260: expected a token in the byte-level alphabet, found \"\u2581the\""},
      {"unknown_left", [](json& d) { d["model"]["merges"][0] = "xy b"; }, kBad,
       "model.merges[0]: expected tokens of model.vocab, found \"xy\", which is none"},
      {"unknown_merged", [](json& d) { d["model"]["merges"][1] = "b c"; }, kBad,
       "model.merges[1]: expected tokens of model.vocab, found \"bc\", which is none"},
      {"three_words", [](json& d) { d["model"]["merges"][1] = "a b c"; }, kBad,
       "model.merges[1]: expected \"a b\" or [\"a\", \"b\"], found \"a b c\""},
      {"three_items",
       [](json& d) {
         d["model"]["merges"][1] = {"a", "b", "c"};
       },
       kBad, "model.merges[1]: expected \"a b\" or [\"a\", \"b\"], found an array"},
      {"merges_object", [](json& d) { d["model"]["merges"] = json::object(); }, kBad,
       "model.merges: expected an array, found an object"},
  };
}

class TokenizerJsonRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(TokenizerJsonRefuses, NamingFileKeyExpectedAndFound) {
  json file = SmallFile();
  GetParam().change(file);
  const absl::StatusOr<Tokenizer> tokenizer = Load(file);
  EXPECT_EQ(tokenizer.status().code(), GetParam().code) << tokenizer.status();
  EXPECT_THAT(
      std::string(tokenizer.status().message()),
      testing::AllOf(testing::StartsWith("dir/tokenizer.json: "), HasSubstr(GetParam().message)));
}

std::string RefusalName(const testing::TestParamInfo<Refusal>& refusal) {
  return refusal.param.name;
}

INSTANTIATE_TEST_SUITE_P(Structure, TokenizerJsonRefuses, testing::ValuesIn(StructureRefusals()),
                         RefusalName);
INSTANTIATE_TEST_SUITE_P(AddedTokens, TokenizerJsonRefuses, testing::ValuesIn(AddedTokenRefusals()),
                         RefusalName);
INSTANTIATE_TEST_SUITE_P(Model, TokenizerJsonRefuses, testing::ValuesIn(ModelRefusals()),
                         RefusalName);

TEST(TokenizerJson, TextThatIsNotJsonIsRefused) {
  for (const std::string_view text : {"", "{", "\xFF\xFE", "{\"version\":\"\\ud800\"}", "nul"}) {
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(text, "f");
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(Tokenizer::FromJson(std::string(1 << 20, '['), "f").ok());
}

TEST(TokenizerJson, MembersThatComeTwiceAreRefused) {
  EXPECT_THAT(
      std::string(
          Tokenizer::FromJson(R"({"version":"1.0","version":"1.0"})", "f").status().message()),
      HasSubstr("version: expected one member of this name, found two"));
  std::string text = SmallFile().dump();
  const std::string entry = R"("ab":256)";
  text.replace(text.find(entry), entry.size(), R"("ab":256,"ab":260)");
  EXPECT_THAT(std::string(Tokenizer::FromJson(text, "f").status().message()),
              HasSubstr("model.vocab[\"ab\"]: expected one member of this name, found two"));
}

TEST(TokenizerJson, MessagesAreOneLineWhateverTheFileHolds) {
  json file = SmallFile();
  file["version"] = "a\nb\u007f";
  EXPECT_THAT(std::string(Load(file).status().message()), HasSubstr(R"(found a\x0Ab\x7F)"));
}

TEST(TokenizerJson, AFileBeyondTheLimitIsRefusedUnread) {
  const std::string text(kTokenizerJsonBytesMax + 1, ' ');
  EXPECT_EQ(Tokenizer::FromJson(text, "f").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(TokenizerJson, DamagedFilesNeverCrash) {
  const std::string good = SmallFile().dump();
  Prng prng(5);
  int refused_count = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = good;
    for (uint64_t i = prng.Below(3) + 1; i > 0; --i) {
      const size_t at = prng.Below(text.size());
      switch (prng.Below(3)) {
        case 0:
          text[at] = static_cast<char>(prng.Below(256));
          break;
        case 1:
          text.erase(at, prng.Below(20));
          break;
        default:
          text.resize(at);
          text.push_back('}');
          break;
      }
    }
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(text, "f");
    refused_count += !tokenizer.ok();
    if (tokenizer.ok()) (void)tokenizer->Encode("abc <s> abcabc", SpecialTokens::kParse);
  }
  EXPECT_GT(refused_count, 200);
}

}  // namespace
}  // namespace hearth
