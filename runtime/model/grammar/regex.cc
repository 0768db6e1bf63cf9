// A recursive-descent parser of patterns, and their way into an Nfa.
#include "runtime/model/grammar/regex.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/grammar/regex_escape.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth::grammar {

struct Regex::Part {
  enum class Kind : uint8_t { kCharacters, kSequence, kChoice, kRepeat, kStart, kEnd };
  Kind kind = Kind::kSequence;
  std::vector<CodePointRange> characters;  // normalised
  std::vector<std::unique_ptr<Part>> children;
  uint32_t least = 0;
  uint32_t most = 0;  // UINT32_MAX: any number
};

namespace {

using Part = Regex::Part;
constexpr uint32_t kAnyNumber = UINT32_MAX;

std::unique_ptr<Part> MakePart(Part::Kind kind) {
  auto part = std::make_unique<Part>();
  part->kind = kind;
  return part;
}

std::unique_ptr<Part> MakeCharacters(std::vector<CodePointRange> ranges) {
  auto part = MakePart(Part::Kind::kCharacters);
  part->characters = Normalized(std::move(ranges));
  return part;
}

std::unique_ptr<Part> MakeAnything() {
  auto part = MakePart(Part::Kind::kRepeat);
  part->most = kAnyNumber;
  part->children.push_back(MakeCharacters({{0, 0x10FFFF}}));
  return part;
}

class Parser {
 public:
  explicit Parser(std::u32string text) : cursor_{std::move(text), 0} {}

  absl::StatusOr<std::unique_ptr<Part>> ParseAll() {
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Part> root, ParseChoice(0));
    if (!cursor_.AtEnd()) return cursor_.Wrong("a ')' without its '('");
    return root;
  }

 private:
  absl::StatusOr<std::unique_ptr<Part>> ParseChoice(uint32_t depth) {
    if (depth > kPatternNestingMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("groups are nested over ", kPatternNestingMax, " deep"));
    }
    auto choice = MakePart(Part::Kind::kChoice);
    do {
      HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Part> sequence, ParseSequence(depth));
      choice->children.push_back(std::move(sequence));
    } while (cursor_.Take('|'));
    return choice;
  }

  absl::StatusOr<std::unique_ptr<Part>> ParseSequence(uint32_t depth) {
    auto sequence = MakePart(Part::Kind::kSequence);
    while (!cursor_.AtEnd() && cursor_.Peek() != '|' && cursor_.Peek() != ')') {
      HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Part> atom, ParseAtom(depth));
      HEARTH_ASSIGN_OR_RETURN(atom, ParseRepeat(std::move(atom)));
      sequence->children.push_back(std::move(atom));
    }
    return sequence;
  }

  absl::StatusOr<std::unique_ptr<Part>> ParseAtom(uint32_t depth) {
    const char32_t c = cursor_.Next();
    switch (c) {
      case '^':
        return MakePart(Part::Kind::kStart);
      case '$':
        return MakePart(Part::Kind::kEnd);
      case '.':
        return MakeCharacters(
            Complement(Normalized({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})));
      case '(':
        return ParseGroup(depth);
      case '[': {
        HEARTH_ASSIGN_OR_RETURN(std::vector<CodePointRange> ranges, ParseClass(cursor_));
        return MakeCharacters(std::move(ranges));
      }
      case '\\': {
        HEARTH_ASSIGN_OR_RETURN(std::vector<CodePointRange> ranges,
                                ParseEscape(cursor_, /*in_class=*/false));
        return MakeCharacters(std::move(ranges));
      }
      case '*':
      case '+':
      case '?':
        return cursor_.Wrong("a repetition of nothing");
      default:
        return MakeCharacters({{c, c}});
    }
  }

  absl::StatusOr<std::unique_ptr<Part>> ParseGroup(uint32_t depth) {
    if (cursor_.Take('?')) {
      if (cursor_.Take('<')) {
        if (cursor_.Take('=') || cursor_.Take('!')) return cursor_.Refused("look-behind");
        while (!cursor_.AtEnd() && cursor_.Peek() != '>') cursor_.Next();
        if (!cursor_.Take('>')) return cursor_.Wrong("a group's name without its end");
      } else if (cursor_.Take('=') || cursor_.Take('!')) {
        return cursor_.Refused("look-ahead");
      } else if (!cursor_.Take(':')) {
        return cursor_.Refused("groups with flags");
      }
    }
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Part> group, ParseChoice(depth + 1));
    if (!cursor_.Take(')')) return cursor_.Wrong("a '(' without its ')'");
    return group;
  }

  absl::StatusOr<std::unique_ptr<Part>> ParseRepeat(std::unique_ptr<Part> atom) {
    uint32_t least = 0;
    uint32_t most = kAnyNumber;
    if (cursor_.Take('*')) {
    } else if (cursor_.Take('+')) {
      least = 1;
    } else if (cursor_.Take('?')) {
      most = 1;
    } else {
      const std::optional<std::pair<uint32_t, uint32_t>> counts = cursor_.TakeCounts();
      if (!counts.has_value()) return atom;
      std::tie(least, most) = *counts;
    }
    cursor_.Take('?');  // lazy
    if (atom->kind == Part::Kind::kStart || atom->kind == Part::Kind::kEnd) {
      return cursor_.Wrong("a repetition of an anchor");
    }
    if (most < least) return cursor_.Wrong("a repetition whose most is below its least");
    if (least > kPatternRepeatMax || (most != kAnyNumber && most > kPatternRepeatMax)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a repetition of over ", kPatternRepeatMax, " times"));
    }
    auto repeat = MakePart(Part::Kind::kRepeat);
    repeat->least = least;
    repeat->most = most;
    repeat->children.push_back(std::move(atom));
    return repeat;
  }

  PatternCursor cursor_;
};

absl::Status AnchorInside() {
  return absl::UnimplementedError(
      "anchors ('^', '$') are supported only at the ends of the pattern and of its alternatives");
}

bool HasAnchor(const Part& part) {
  if (part.kind == Part::Kind::kStart || part.kind == Part::Kind::kEnd) return true;
  for (const auto& child : part.children) {
    if (HasAnchor(*child)) return true;
  }
  return false;
}

// Turns "found anywhere" into "is all of it": where no anchor stands, anything may come around.
absl::Status Anchor(Part& part) {
  if (part.kind == Part::Kind::kChoice) {
    for (const auto& child : part.children) HEARTH_RETURN_IF_ERROR(Anchor(*child));
    return absl::OkStatus();
  }
  std::vector<std::unique_ptr<Part>> children = std::move(part.children);
  part.children.clear();
  // A group that is all there is may hold the anchors: ^(a|b)$ and (^a$|^b$) alike.
  if (children.size() == 1 && children[0]->kind == Part::Kind::kChoice) {
    HEARTH_RETURN_IF_ERROR(Anchor(*children[0]));
    part.children = std::move(children);
    return absl::OkStatus();
  }
  size_t begin = 0;
  size_t end = children.size();
  while (begin < end && children[begin]->kind == Part::Kind::kStart) ++begin;
  const bool at_start = begin > 0;
  while (end > begin && children[end - 1]->kind == Part::Kind::kEnd) --end;
  const bool at_end = end < children.size();
  if (!at_start) part.children.push_back(MakeAnything());
  for (size_t i = begin; i < end; ++i) {
    if (HasAnchor(*children[i])) return AnchorInside();
    part.children.push_back(std::move(children[i]));
  }
  if (!at_end) part.children.push_back(MakeAnything());
  return absl::OkStatus();
}

Nfa::State Emit(const Part& part, Nfa& nfa, Nfa::State from, TextEncoding encoding) {
  if (nfa.too_large()) return from;
  switch (part.kind) {
    case Part::Kind::kCharacters: {
      const Nfa::State to = nfa.AddState();
      nfa.AddCodePoints(from, part.characters, encoding, to);
      return to;
    }
    case Part::Kind::kSequence:
      for (const auto& child : part.children) from = Emit(*child, nfa, from, encoding);
      return from;
    case Part::Kind::kChoice: {
      const Nfa::State to = nfa.AddState();
      for (const auto& child : part.children) {
        nfa.AddEpsilon(Emit(*child, nfa, from, encoding), to);
      }
      return to;
    }
    case Part::Kind::kRepeat: {
      const Part& child = *part.children[0];
      for (uint32_t i = 0; i < part.least; ++i) from = Emit(child, nfa, from, encoding);
      const Nfa::State to = nfa.AddState();
      if (part.most == kAnyNumber) {
        const Nfa::State loop = nfa.AddState();
        nfa.AddEpsilon(from, loop);
        nfa.AddEpsilon(Emit(child, nfa, loop, encoding), loop);
        nfa.AddEpsilon(loop, to);
        return to;
      }
      for (uint32_t i = part.least; i < part.most && !nfa.too_large(); ++i) {
        nfa.AddEpsilon(from, to);
        // A state of its own: what follows must not lead back into what came before.
        const Nfa::State begin = nfa.AddState();
        nfa.AddEpsilon(from, begin);
        from = Emit(child, nfa, begin, encoding);
      }
      nfa.AddEpsilon(from, to);
      return to;
    }
    case Part::Kind::kStart:
    case Part::Kind::kEnd:
      return from;
  }
  return from;
}

}  // namespace

Regex::Regex(std::unique_ptr<Part> root) : root_(std::move(root)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

absl::StatusOr<Regex> Regex::Parse(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a pattern of ", pattern.size(), " bytes; at most ", kPatternBytesMax));
  }
  HEARTH_ASSIGN_OR_RETURN(std::u32string text, CodePointsOf(pattern));
  Parser parser(std::move(text));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Part> root, parser.ParseAll());
  HEARTH_RETURN_IF_ERROR(Anchor(*root));
  return Regex(std::move(root));
}

Nfa::State Regex::AddTo(Nfa& nfa, Nfa::State from, TextEncoding encoding) const {
  return Emit(*root_, nfa, from, encoding);
}

}  // namespace hearth::grammar
