// The pipeline: repair UTF-8, cut at added tokens, normalise, split, merge.
#include "runtime/model/tokenizer/tokenizer.h"

#include <utility>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/tokenizer/added_token_trie.h"
#include "runtime/model/tokenizer/bpe.h"
#include "runtime/model/tokenizer/nfc.h"
#include "runtime/model/tokenizer/splitter.h"
#include "runtime/model/tokenizer/tokenizer_json.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

enum class TokenKind : uint8_t { kOrdinary, kAdded, kAddedSpecial };

// A stretch of the joined text in which added tokens are looked for or not.
struct Stretch {
  size_t end_bytes;  // begins where the one before ends
  SpecialTokens special;
};

}  // namespace

struct Tokenizer::Data {
  Data(TokenizerDescription&& from, std::optional<Splitter>&& split)
      : description(std::move(from)),
        splitter(std::move(split)),
        bpe(description),
        added(description.added_tokens),
        kinds(description.tokens.token_count(), TokenKind::kOrdinary) {
    for (const AddedToken& token : description.added_tokens) {
      kinds[static_cast<uint32_t>(token.id)] =
          token.special ? TokenKind::kAddedSpecial : TokenKind::kAdded;
      id_of_added.emplace(token.content, token.id);
    }
    description.merges = {};
  }

  bool Has(TokenId id) const { return id >= 0 && static_cast<uint32_t>(id) < kinds.size(); }
  TokenKind KindOf(TokenId id) const { return kinds[static_cast<uint32_t>(id)]; }

  TokenizerDescription description;  // without its merges, which `bpe` has
  std::optional<Splitter> splitter;
  BpeModel bpe;
  AddedTokenTrie added;
  std::vector<TokenKind> kinds;                                // by id
  absl::flat_hash_map<std::string_view, TokenId> id_of_added;  // keys in description.added_tokens
};

namespace {

// What one Encode call carries from text to text.
struct EncodeState {
  std::vector<std::string_view> pieces;
  BpeModel::Scratch scratch;
  std::vector<TokenId> ids;
};

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::FromJson(std::string_view json_text, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(TokenizerDescription description, ParseTokenizerJson(json_text, path));
  std::optional<Splitter> splitter;
  if (description.split_pattern) {
    absl::StatusOr<Splitter> created = Splitter::Create(*description.split_pattern);
    if (!created.ok()) return Annotate(created.status(), path + ": pre_tokenizer: pattern");
    splitter = *std::move(created);
  }
  return Tokenizer(std::make_unique<const Data>(std::move(description), std::move(splitter)));
}

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&& other) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&& other) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::Encode(std::string_view text, SpecialTokens special) const {
  const TextPart part{text, special};
  return EncodeParts({&part, 1});
}

std::vector<TokenId> Tokenizer::EncodeParts(std::span<const TextPart> parts) const {
  std::string text;
  std::vector<Stretch> stretches;  // neighbours differ in `special`
  for (const TextPart& part : parts) {
    AppendReplacingBroken(part.text, text);
    if (stretches.empty() || stretches.back().special != part.special) {
      stretches.push_back({text.size(), part.special});
    } else {
      stretches.back().end_bytes = text.size();
    }
  }
  EncodeState state;
  const auto encode_ordinary = [&](std::string_view segment, MergeInto into) {
    if (segment.empty()) return;
    const std::string normalized =
        data_->description.normalize_nfc ? NormalizeNfc(segment) : std::string();
    if (data_->description.normalize_nfc) segment = normalized;
    state.pieces.clear();
    if (data_->splitter) {
      data_->splitter->Split(segment, state.pieces);
    } else {
      state.pieces.push_back(segment);
    }
    for (const std::string_view piece : state.pieces) {
      data_->bpe.EncodePiece(piece, into, state.scratch, state.ids);
    }
  };
  const std::string_view all = text;
  size_t done = 0;   // [0, done) is encoded
  size_t begin = 0;  // of the stretch
  MergeInto into = MergeInto::kAnyToken;
  for (const Stretch& stretch : stretches) {
    if (stretch.special == SpecialTokens::kAsText) {
      into = MergeInto::kOrdinaryToken;
    } else {
      const std::string_view until = all.substr(0, stretch.end_bytes);
      while (const auto match = data_->added.Find(until, std::max(begin, done))) {
        encode_ordinary(all.substr(done, match->begin_bytes - done), into);
        state.ids.push_back(match->id);
        done = match->begin_bytes + match->length_bytes;
        into = MergeInto::kAnyToken;
      }
    }
    begin = stretch.end_bytes;
  }
  encode_ordinary(all.substr(done), into);
  return std::move(state.ids);
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, SkipSpecial skip) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip == SkipSpecial::kYes && IsSpecial(id)) continue;
    bytes.append(TokenBytes(id));
  }
  std::string text;
  text.reserve(bytes.size());
  AppendReplacingBroken(bytes, text);
  return text;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  return data_->Has(id) ? data_->description.tokens[id] : std::string_view();
}

std::optional<TokenId> Tokenizer::FindToken(std::string_view content) const {
  const auto found = data_->id_of_added.find(content);
  if (found == data_->id_of_added.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::IsAdded(TokenId id) const {
  return data_->Has(id) && data_->KindOf(id) != TokenKind::kOrdinary;
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return data_->Has(id) && data_->KindOf(id) == TokenKind::kAddedSpecial;
}

uint32_t Tokenizer::vocab_count() const { return data_->description.tokens.token_count(); }

}  // namespace hearth
