// tokenizer.json through simdjson's DOM: sections are read in the order in which they depend on
// each other, the vocabulary first.
#include "runtime/model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include <simdjson.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/model/tokenizer/byte_alphabet.h"
#include "runtime/model/tokenizer/json_checks.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kJsonDepthMax = 32;
constexpr uint32_t kListedPartsMax = 16;  // parts of a Sequence

// What ByteLevel splits by when use_regex is true: the pattern of GPT-2.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The token spelt in the byte alphabet as bytes; nullopt where a character stands for no byte.
std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const std::optional<uint8_t> byte = ByteOfStandIn(CodePointAt(spelling));
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    spelling.remove_prefix(NextUtf8(spelling).length_bytes);
  }
  return bytes;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<TokenizerDescription> Read(dom::element file);

 private:
  using IdOfSpelling = absl::flat_hash_map<std::string_view, TokenId>;

  absl::Status ReadAddedTokens(const JsonObject& root);
  absl::StatusOr<AddedToken> ReadAddedToken(dom::element element, const std::string& key);
  absl::Status ReadVocab(const JsonObject& model);
  absl::Status PlaceAddedTokens();
  absl::Status FillTokens();
  absl::Status CheckByteTokens() const;
  absl::Status ReadMerges(const JsonObject& model);
  absl::StatusOr<BpeMerge> ReadMerge(dom::element element, const std::string& key,
                                     std::string& joined) const;
  absl::StatusOr<TokenId> IdOf(std::string_view spelling, const std::string& key) const;
  absl::Status ReadModel(const JsonObject& root);
  absl::Status ReadNormalizer(const JsonObject& root);
  absl::Status ReadNormalizerPart(dom::element element, const std::string& key, uint32_t depth);
  absl::Status ReadPreTokenizer(const JsonObject& root);
  absl::Status ReadPreTokenizerSequence(const JsonObject& sequence);
  absl::Status ReadSplit(dom::element element, const std::string& key);
  absl::Status CheckByteLevel(const JsonObject& part, std::optional<bool> must_use_regex);
  absl::Status CheckByteLevelOrNull(const JsonObject& root, std::string_view member);

  const std::string& path_;
  TokenizerDescription description_;
  IdOfSpelling vocab_;                       // model.vocab; keys lie in the parsed document
  std::vector<std::string_view> spellings_;  // by id, from model.vocab; empty: not named there
  std::vector<int32_t> added_at_;            // by id: index in added_tokens, or -1
};

absl::StatusOr<TokenizerDescription> Reader::Read(dom::element file) {
  HEARTH_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(file, path_, ""));
  HEARTH_RETURN_IF_ERROR(
      root.CheckMembers({"version", "truncation", "padding", "added_tokens", "normalizer",
                         "pre_tokenizer", "post_processor", "decoder", "model"}));
  if (root.Find("version")) {
    HEARTH_ASSIGN_OR_RETURN(const std::string_view version, root.String("version"));
    if (version != "1.0") return NotSupported(path_, "version", "\"1.0\"", version);
  }
  HEARTH_RETURN_IF_ERROR(root.MustBeNull("truncation"));
  HEARTH_RETURN_IF_ERROR(root.MustBeNull("padding"));
  HEARTH_RETURN_IF_ERROR(ReadNormalizer(root));
  HEARTH_RETURN_IF_ERROR(ReadPreTokenizer(root));
  HEARTH_RETURN_IF_ERROR(CheckByteLevelOrNull(root, "post_processor"));
  HEARTH_RETURN_IF_ERROR(CheckByteLevelOrNull(root, "decoder"));
  HEARTH_RETURN_IF_ERROR(ReadAddedTokens(root));
  HEARTH_RETURN_IF_ERROR(ReadModel(root));
  return std::move(description_);
}

absl::Status Reader::ReadAddedTokens(const JsonObject& root) {
  if (!root.Find("added_tokens")) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const dom::array list, root.Array("added_tokens"));
  absl::flat_hash_map<std::string, std::string> key_of_content;
  for (const dom::element element : list) {
    const size_t index = description_.added_tokens.size();
    const std::string key = absl::StrCat("added_tokens[", index, "]");
    if (index == kAddedTokenCountMax) {
      return Malformed(path_, "added_tokens", absl::StrCat("at most ", kAddedTokenCountMax),
                       "more");
    }
    HEARTH_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(element, key));
    const auto [same, is_new] = key_of_content.emplace(token.content, key);
    if (!is_new) {
      return Malformed(path_, key + ".content", "a content of its own", "that of " + same->second);
    }
    description_.added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedToken> Reader::ReadAddedToken(dom::element element, const std::string& key) {
  HEARTH_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(element, path_, key));
  HEARTH_RETURN_IF_ERROR(object.CheckMembers(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token{};
  const std::optional<dom::element> id = object.Find("id");
  uint64_t id_value = 0;
  if (!id || id->get(id_value) != simdjson::SUCCESS || id_value >= kVocabCountMax) {
    return Malformed(path_, key + ".id", absl::StrCat("an id below ", kVocabCountMax),
                     id ? DescribeJson(*id) : "nothing");
  }
  token.id = static_cast<TokenId>(id_value);
  HEARTH_ASSIGN_OR_RETURN(const std::string_view content, object.String("content"));
  if (content.empty() || content.size() > kAddedTokenBytesMax) {
    return Malformed(path_, key + ".content", absl::StrCat("1 to ", kAddedTokenBytesMax, " bytes"),
                     absl::StrCat(content.size(), " bytes"));
  }
  token.content = std::string(content);
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
    HEARTH_ASSIGN_OR_RETURN(const bool value, object.Bool(flag));
    if (value) return NotSupported(path_, object.KeyOf(flag), "false", "true");
  }
  HEARTH_ASSIGN_OR_RETURN(token.special, object.Bool("special"));
  return token;
}

absl::Status Reader::ReadVocab(const JsonObject& model) {
  const std::optional<dom::element> vocab = model.Find("vocab");
  dom::object object;
  if (!vocab || vocab->get(object) != simdjson::SUCCESS) {
    return Malformed(path_, "model.vocab", "an object", vocab ? DescribeJson(*vocab) : "nothing");
  }
  for (const dom::key_value_pair entry : object) {
    const auto key = [&entry] {
      return absl::StrCat("model.vocab[", ToAbsl(DescribeJson(entry.value)), "]");
    };
    uint64_t id = 0;
    if (entry.value.get(id) != simdjson::SUCCESS || id >= kVocabCountMax) {
      return Malformed(path_,
                       absl::StrCat("model.vocab[\"", ToAbsl(entry.key.substr(0, 60)), "\"]"),
                       absl::StrCat("an id below ", kVocabCountMax), DescribeJson(entry.value));
    }
    if (entry.key.empty()) return Malformed(path_, key(), "a token of some bytes", "none");
    if (id >= spellings_.size()) spellings_.resize(id + 1);
    if (!spellings_[id].empty()) {
      return Malformed(
          path_, "model.vocab", absl::StrCat("one token with id ", id),
          absl::StrCat("\"", ToAbsl(spellings_[id]), "\" and \"", ToAbsl(entry.key), "\""));
    }
    spellings_[id] = entry.key;
    if (!vocab_.emplace(entry.key, static_cast<TokenId>(id)).second) {
      return Malformed(path_, absl::StrCat("model.vocab[\"", ToAbsl(entry.key), "\"]"),
                       "one member of this name", "two");
    }
  }
  return absl::OkStatus();
}

// Gives every added token its place: its own id in the vocabulary, or one that no token has.
absl::Status Reader::PlaceAddedTokens() {
  const std::vector<AddedToken>& added = description_.added_tokens;
  for (size_t i = 0; i < added.size(); ++i) {
    const std::string key = absl::StrCat("added_tokens[", i, "].id");
    const uint32_t id = static_cast<uint32_t>(added[i].id);
    if (id >= spellings_.size()) spellings_.resize(id + 1);
    if (id >= added_at_.size()) added_at_.resize(id + 1, -1);
    if (added_at_[id] >= 0) {
      return Malformed(path_, key, "an id of its own",
                       absl::StrCat(id, ", also of added_tokens[", added_at_[id], "]"));
    }
    added_at_[id] = static_cast<int32_t>(i);
    const auto in_vocab = vocab_.find(added[i].content);
    if (in_vocab != vocab_.end() && in_vocab->second != added[i].id) {
      return Malformed(path_, key, absl::StrCat("its id in model.vocab, ", in_vocab->second),
                       absl::StrCat(id));
    }
    if (in_vocab == vocab_.end() && !spellings_[id].empty()) {
      return Malformed(path_, key, "an id that no other token has",
                       absl::StrCat(id, ", which is \"", ToAbsl(spellings_[id]), "\""));
    }
  }
  added_at_.resize(spellings_.size(), -1);
  return absl::OkStatus();
}

absl::Status Reader::FillTokens() {
  uint64_t bytes = 0;
  for (const std::string_view spelling : spellings_) bytes += spelling.size();
  description_.tokens.Reserve(static_cast<uint32_t>(spellings_.size()), bytes);
  for (size_t id = 0; id < spellings_.size(); ++id) {
    const std::string_view spelling = spellings_[id];
    description_.in_model.push_back(!spelling.empty());
    if (added_at_[id] >= 0) {
      description_.tokens.Append(
          description_.added_tokens[static_cast<size_t>(added_at_[id])].content);
      continue;
    }
    if (spelling.empty()) {
      return Malformed(path_, "model.vocab", absl::StrCat("ids 0 to ", spellings_.size() - 1),
                       absl::StrCat("no token with id ", id));
    }
    const std::optional<std::string> token = BytesOfSpelling(spelling);
    if (!token) {
      return NotSupported(path_, absl::StrCat("model.vocab, id ", id),
                          "a token in the byte-level alphabet",
                          absl::StrCat("\"", ToAbsl(spelling), "\""));
    }
    description_.tokens.Append(*token);
  }
  return absl::OkStatus();
}

absl::Status Reader::CheckByteTokens() const {
  std::vector<bool> has(256, false);
  for (size_t id = 0; id < spellings_.size(); ++id) {
    const std::string_view token = description_.tokens[static_cast<TokenId>(id)];
    if (token.size() != 1 || !description_.in_model[id]) continue;
    if (added_at_[id] >= 0) {  // then text could not be told from the added token
      return NotSupported(path_, absl::StrCat("added_tokens[", added_at_[id], "].content"),
                          "more than one byte of model.vocab",
                          absl::StrCat("\"", ToAbsl(token), "\""));
    }
    has[static_cast<uint8_t>(token[0])] = true;
  }
  const auto missing = std::find(has.begin(), has.end(), false);
  if (missing == has.end()) return absl::OkStatus();
  return Malformed(path_, "model.vocab", "a token for every single byte",
                   absl::StrFormat("none for byte 0x%02X", missing - has.begin()));
}

absl::StatusOr<TokenId> Reader::IdOf(std::string_view spelling, const std::string& key) const {
  const auto found = vocab_.find(spelling);
  if (found != vocab_.end()) return found->second;
  return Malformed(path_, key, "tokens of model.vocab",
                   absl::StrCat("\"", ToAbsl(spelling.substr(0, 60)), "\", which is none"));
}

absl::StatusOr<BpeMerge> Reader::ReadMerge(dom::element element, const std::string& key,
                                           std::string& joined) const {
  constexpr std::string_view kExpected = "\"a b\" or [\"a\", \"b\"]";
  std::string_view left;
  std::string_view right;
  std::string_view text;
  dom::array pair;
  if (element.get(text) == simdjson::SUCCESS) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return Malformed(path_, key, kExpected, DescribeJson(element));
    }
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
             pair.at(0).get(left) != simdjson::SUCCESS ||
             pair.at(1).get(right) != simdjson::SUCCESS) {
    return Malformed(path_, key, kExpected, DescribeJson(element));
  }
  joined.assign(left).append(right);
  BpeMerge merge{};
  HEARTH_ASSIGN_OR_RETURN(merge.left, IdOf(left, key));
  HEARTH_ASSIGN_OR_RETURN(merge.right, IdOf(right, key));
  HEARTH_ASSIGN_OR_RETURN(merge.merged, IdOf(joined, key));
  return merge;
}

absl::Status Reader::ReadMerges(const JsonObject& model) {
  HEARTH_ASSIGN_OR_RETURN(const dom::array list, model.Array("merges"));
  std::string joined;
  for (const dom::element element : list) {
    const size_t rank = description_.merges.size();
    if (rank == kMergeCountMax) {
      return Malformed(path_, "model.merges", absl::StrCat("at most ", kMergeCountMax), "more");
    }
    absl::StatusOr<BpeMerge> merge = ReadMerge(element, "model.merges", joined);
    if (!merge.ok())
      return ReadMerge(element, absl::StrCat("model.merges[", rank, "]"), joined).status();
    description_.merges.push_back(*merge);
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadModel(const JsonObject& root) {
  const std::optional<dom::element> element = root.Find("model");
  if (!element) return Malformed(path_, "model", "an object", "nothing");
  HEARTH_ASSIGN_OR_RETURN(const JsonObject model, JsonObject::From(*element, path_, "model"));
  HEARTH_RETURN_IF_ERROR(model.CheckMembers(
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view type, model.String("type"));
  if (type != "BPE") return NotSupported(path_, "model.type", "\"BPE\"", type);
  HEARTH_RETURN_IF_ERROR(model.MustBeNull("dropout"));
  HEARTH_RETURN_IF_ERROR(model.MustBeNull("unk_token"));
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.Find(affix)) continue;
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text, model.String(affix));
    if (!text.empty()) return NotSupported(path_, model.KeyOf(affix), "null or \"\"", text);
  }
  HEARTH_RETURN_IF_ERROR(
      model.BoolOr("fuse_unk", false).status());  // without unk_token: no meaning
  HEARTH_RETURN_IF_ERROR(model.MustBe("byte_fallback", false, false));
  HEARTH_ASSIGN_OR_RETURN(description_.ignore_merges, model.BoolOr("ignore_merges", false));
  HEARTH_RETURN_IF_ERROR(ReadVocab(model));
  HEARTH_RETURN_IF_ERROR(PlaceAddedTokens());
  HEARTH_RETURN_IF_ERROR(FillTokens());
  HEARTH_RETURN_IF_ERROR(CheckByteTokens());
  return ReadMerges(model);
}

absl::Status Reader::ReadNormalizer(const JsonObject& root) {
  const std::optional<dom::element> element = root.Find("normalizer");
  if (!element) return absl::OkStatus();
  return ReadNormalizerPart(*element, "normalizer", 0);
}

absl::Status Reader::ReadNormalizerPart(dom::element element, const std::string& key,
                                        uint32_t depth) {
  HEARTH_ASSIGN_OR_RETURN(const JsonObject part, JsonObject::From(element, path_, key));
  HEARTH_RETURN_IF_ERROR(part.CheckMembers({"type", "normalizers"}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view type, part.String("type"));
  if (type == "NFC") {
    description_.normalize_nfc = true;  // twice is once: NFC is idempotent
    return absl::OkStatus();
  }
  if (type != "Sequence" || depth > 0) {
    return NotSupported(path_, key, "null, NFC or a Sequence of NFC", type);
  }
  HEARTH_ASSIGN_OR_RETURN(const dom::array parts, part.Array("normalizers"));
  uint32_t index = 0;
  for (const dom::element inner : parts) {
    if (index == kListedPartsMax) {
      return Malformed(path_, key, absl::StrCat("at most ", kListedPartsMax, " parts"), "more");
    }
    HEARTH_RETURN_IF_ERROR(
        ReadNormalizerPart(inner, absl::StrCat(key, ".normalizers[", index++, "]"), depth + 1));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadPreTokenizer(const JsonObject& root) {
  constexpr std::string_view kExpected = "ByteLevel or a Sequence of Split and ByteLevel";
  const std::optional<dom::element> element = root.Find("pre_tokenizer");
  if (!element) return NotSupported(path_, "pre_tokenizer", kExpected, "null");
  HEARTH_ASSIGN_OR_RETURN(const JsonObject object,
                          JsonObject::From(*element, path_, "pre_tokenizer"));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view type, object.String("type"));
  if (type == "Sequence") return ReadPreTokenizerSequence(object);
  if (type != "ByteLevel") return NotSupported(path_, "pre_tokenizer.type", kExpected, type);
  HEARTH_RETURN_IF_ERROR(CheckByteLevel(object, std::nullopt));
  HEARTH_ASSIGN_OR_RETURN(const bool use_regex, object.BoolOr("use_regex", true));
  if (use_regex) description_.split_pattern = std::string(kByteLevelPattern);
  return absl::OkStatus();
}

absl::Status Reader::ReadPreTokenizerSequence(const JsonObject& sequence) {
  HEARTH_RETURN_IF_ERROR(sequence.CheckMembers({"type", "pretokenizers"}));
  HEARTH_ASSIGN_OR_RETURN(const dom::array parts, sequence.Array("pretokenizers"));
  const std::string key = sequence.KeyOf("pretokenizers");
  if (parts.size() != 2) {
    return NotSupported(path_, key, "two: Split, then ByteLevel", absl::StrCat(parts.size()));
  }
  HEARTH_RETURN_IF_ERROR(ReadSplit(parts.at(0).value_unsafe(), key + "[0]"));
  HEARTH_ASSIGN_OR_RETURN(const JsonObject byte_level,
                          JsonObject::From(parts.at(1).value_unsafe(), path_, key + "[1]"));
  return CheckByteLevel(byte_level, false);
}

absl::Status Reader::ReadSplit(dom::element element, const std::string& key) {
  HEARTH_ASSIGN_OR_RETURN(const JsonObject split, JsonObject::From(element, path_, key));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view type, split.String("type"));
  if (type != "Split") return NotSupported(path_, key + ".type", "Split", type);
  HEARTH_RETURN_IF_ERROR(split.CheckMembers({"type", "pattern", "behavior", "invert"}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view behavior, split.String("behavior"));
  if (behavior != "Isolated") {
    return NotSupported(path_, key + ".behavior", "Isolated", behavior);
  }
  HEARTH_RETURN_IF_ERROR(split.MustBe("invert", false, false));
  const std::optional<dom::element> pattern = split.Find("pattern");
  if (!pattern) return Malformed(path_, key + ".pattern", "an object", "nothing");
  HEARTH_ASSIGN_OR_RETURN(const JsonObject object,
                          JsonObject::From(*pattern, path_, key + ".pattern"));
  HEARTH_RETURN_IF_ERROR(object.CheckMembers({"Regex"}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view regex, object.String("Regex"));
  description_.split_pattern = std::string(regex);
  return absl::OkStatus();
}

// `must_use_regex`: nullopt accepts both.
absl::Status Reader::CheckByteLevel(const JsonObject& part, std::optional<bool> must_use_regex) {
  HEARTH_ASSIGN_OR_RETURN(const std::string_view type, part.String("type"));
  if (type != "ByteLevel") return NotSupported(path_, part.KeyOf("type"), "ByteLevel", type);
  HEARTH_RETURN_IF_ERROR(
      part.CheckMembers({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  HEARTH_RETURN_IF_ERROR(part.MustBe("add_prefix_space", false, true));
  HEARTH_RETURN_IF_ERROR(part.BoolOr("trim_offsets", true).status());  // offsets are not reported
  if (!must_use_regex) return part.BoolOr("use_regex", true).status();
  return part.MustBe("use_regex", *must_use_regex, true);
}

// A post-processor of this type moves offsets only, and a decoder of this type has no options.
absl::Status Reader::CheckByteLevelOrNull(const JsonObject& root, std::string_view member) {
  const std::optional<dom::element> element = root.Find(member);
  if (!element) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const JsonObject object,
                          JsonObject::From(*element, path_, std::string(member)));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view type, object.String("type"));
  if (type != "ByteLevel") return NotSupported(path_, object.KeyOf("type"), "ByteLevel", type);
  return object.CheckMembers({"type", "add_prefix_space", "trim_offsets", "use_regex"});
}

}  // namespace

absl::StatusOr<TokenizerDescription> ParseTokenizerJson(std::string_view json_text,
                                                        const std::string& path) {
  if (json_text.size() > kTokenizerJsonBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": expected at most ", kTokenizerJsonBytesMax, " bytes, found ", json_text.size()));
  }
  const simdjson::padded_string padded(json_text);
  dom::parser parser(kTokenizerJsonBytesMax);
  simdjson::error_code error = parser.allocate(padded.size(), kJsonDepthMax);
  dom::element file;
  if (error == simdjson::SUCCESS) error = parser.parse(padded).get(file);
  if (error != simdjson::SUCCESS) {
    return Malformed(path, "the file", "JSON", simdjson::error_message(error));
  }
  return Reader(path).Read(file);
}

}  // namespace hearth
