#include "runtime/serve/api/control_text_guard.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth {
namespace {

constexpr std::string_view kMarkBegin = "\xEF\xB7\x90";  // U+FDD0
constexpr std::string_view kMarkEnd = "\xEF\xB7\x91";    // U+FDD1
constexpr char kBetweenContents = '\xFF';                // in no valid UTF-8

std::vector<AddedToken> AddedTokensOf(const Tokenizer& tokenizer) {
  std::vector<AddedToken> tokens;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocab_count()); ++id) {
    if (!tokenizer.IsAdded(id)) continue;
    tokens.push_back({.id = id,
                      .content = std::string(tokenizer.TokenBytes(id)),
                      .special = tokenizer.IsSpecial(id)});
  }
  return tokens;
}

absl::Status CutMark() {
  return absl::UnimplementedError(
      "messages: the chat template takes text apart that spells control tokens; this server cannot "
      "tell such text from its own");
}

}  // namespace

ControlTextGuard::ControlTextGuard(const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), trie_(AddedTokensOf(tokenizer)) {
  for (const AddedToken& token : AddedTokensOf(tokenizer)) {
    joined_ += token.content;
    joined_ += kBetweenContents;
    content_bytes_max_ = std::max(content_bytes_max_, token.content.size());
    for (size_t length = 1; length < token.content.size(); ++length) {
      beginnings_.insert(token.content.substr(0, length));
      endings_.insert(token.content.substr(token.content.size() - length));
    }
  }
}

bool ControlTextGuard::SpellsControlToken(std::string_view text) const {
  return trie_.Find(text, 0).has_value();
}

void ControlTextGuard::AddEdges(std::string_view text, Range within,
                                std::vector<Range>& ranges) const {
  const std::string_view part = text.substr(within.begin, within.end - within.begin);
  for (size_t length = std::min(part.size(), content_bytes_max_); length > 0; --length) {
    if (!beginnings_.contains(ToAbsl(part.substr(part.size() - length)))) continue;
    ranges.push_back({within.end - length, within.end});
    break;
  }
  for (size_t length = std::min(part.size(), content_bytes_max_); length > 0; --length) {
    if (!endings_.contains(ToAbsl(part.substr(0, length)))) continue;
    ranges.push_back({within.begin, within.begin + length});
    break;
  }
}

std::vector<ControlTextGuard::Range> ControlTextGuard::RangesToMark(std::string_view text) const {
  std::vector<Range> ranges;
  for (size_t at = 0; const auto match = trie_.Find(text, at);) {
    ranges.push_back({match->begin_bytes, match->begin_bytes + match->length_bytes});
    at = match->begin_bytes + match->length_bytes;
  }
  for (size_t at = text.find(kMarkBegin); at != std::string_view::npos;
       at = text.find(kMarkBegin, at + kMarkBegin.size())) {
    ranges.push_back({at, at + kMarkBegin.size()});
  }
  // Templates trim text, so its ends are those of the trimmed text as well.
  const std::string_view trimmed = jinja::Strip(text, jinja::Sides::kBoth);
  AddEdges(text, {0, text.size()}, ranges);
  if (!trimmed.empty()) {
    const auto begin = static_cast<size_t>(trimmed.data() - text.data());
    AddEdges(text, {begin, begin + trimmed.size()}, ranges);
  }
  return ranges;
}

std::string ControlTextGuard::Mark(std::string_view text, std::vector<Range> ranges, Marks& marks) {
  if (ranges.empty()) return std::string(text);
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::string out;
  size_t done = 0;
  for (size_t i = 0; i < ranges.size();) {
    Range range = ranges[i++];
    while (i < ranges.size() && ranges[i].begin <= range.end) {
      range.end = std::max(range.end, ranges[i++].end);
    }
    absl::StrAppend(&out, ToAbsl(text.substr(done, range.begin - done)), ToAbsl(kMarkBegin),
                    marks.texts.size(), ToAbsl(kMarkEnd));
    marks.texts.emplace_back(text.substr(range.begin, range.end - range.begin));
    done = range.end;
  }
  absl::StrAppend(&out, ToAbsl(text.substr(done)));
  return out;
}

std::string ControlTextGuard::Guard(std::string_view text, Marks& marks) const {
  std::vector<Range> ranges = RangesToMark(text);
  const std::string_view trimmed = jinja::Strip(text, jinja::Sides::kBoth);
  if (!trimmed.empty() && trimmed.size() < content_bytes_max_ &&
      joined_.find(trimmed) != std::string::npos) {
    const auto begin = static_cast<size_t>(trimmed.data() - text.data());
    ranges.push_back({begin, begin + trimmed.size()});
  }
  return Mark(text, std::move(ranges), marks);
}

std::string ControlTextGuard::GuardWord(std::string_view word, Marks& marks) const {
  return Mark(word, RangesToMark(word), marks);
}

absl::StatusOr<std::vector<TextPart>> ControlTextGuard::Split(std::string_view rendered,
                                                              const Marks& marks) {
  std::vector<TextPart> parts;
  // A template that writes its JSON in ASCII.
  if (!marks.texts.empty() && rendered.find("\\ufdd0") != std::string_view::npos) return CutMark();
  size_t done = 0;
  for (size_t at = rendered.find(kMarkBegin); at != std::string_view::npos;
       at = rendered.find(kMarkBegin, done)) {
    const char* const digits = rendered.data() + at + kMarkBegin.size();
    const char* const end = rendered.data() + rendered.size();
    size_t number = 0;
    const auto [after, error] = std::from_chars(digits, end, number);
    const std::string_view rest(after, static_cast<size_t>(end - after));
    if (error != std::errc() || !rest.starts_with(kMarkEnd) || number >= marks.texts.size()) {
      return CutMark();
    }
    if (at > done) parts.push_back({rendered.substr(done, at - done), SpecialTokens::kParse});
    parts.push_back({marks.texts[number], SpecialTokens::kAsText});
    done = static_cast<size_t>(rest.data() - rendered.data()) + kMarkEnd.size();
  }
  if (done < rendered.size()) parts.push_back({rendered.substr(done), SpecialTokens::kParse});
  return parts;
}

absl::StatusOr<std::vector<TokenId>> ControlTextGuard::Encode(std::string_view rendered,
                                                              const Marks& marks) const {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<TextPart> parts, Split(rendered, marks));
  return tokenizer_->EncodeParts(parts);
}

absl::StatusOr<std::string> ControlTextGuard::Text(std::string_view rendered,
                                                   const Marks& marks) const {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<TextPart> parts, Split(rendered, marks));
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

}  // namespace hearth
