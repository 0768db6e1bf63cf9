#include "runtime/serve/api/answer_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/serve/api/tool_call_text.h"

namespace hearth {
namespace {

constexpr std::string_view kThinkBegin = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kWhitespace = " \t\r\n";
constexpr std::string_view kLineBreaks = "\r\n";

// Bytes at the end of `text` that may become `mark`, which is not in it.
size_t BegunAtEnd(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (mark.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

size_t WithoutTrailing(std::string_view text, std::string_view set) {
  return text.find_last_not_of(set) + 1;  // npos + 1 is 0
}

size_t LeadingOf(std::string_view text, std::string_view set) {
  return std::min(text.find_first_not_of(set), text.size());
}

}  // namespace

AnswerParser::AnswerParser(AnswerFormat format) : format_(std::move(format)) {
  if (format_.trim_beginning) state_ = State::kAfterReasoning;
  if (format_.reasoning) {
    state_ = format_.reasoning_open ? State::kReasoning : State::kBeginning;
  }
}

void AnswerParser::Push(std::string_view text, std::vector<AnswerPart>& parts) {
  text_ += joiner_.Push(text);
  Run(parts);
}

void AnswerParser::Finish(std::vector<AnswerPart>& parts) {
  text_ += joiner_.Finish();
  finished_ = true;
  Run(parts);
}

void AnswerParser::Run(std::vector<AnswerPart>& parts) {
  while (Step(parts)) {
  }
  text_.erase(0, begin_);
  begin_ = 0;
}

bool AnswerParser::Step(std::vector<AnswerPart>& parts) {
  switch (state_) {
    case State::kBeginning:
      return StepBeginning();
    case State::kReasoning:
      return StepReasoning(parts);
    case State::kAfterReasoning: {
      Drop(LeadingOf(held(), kLineBreaks));
      if (held().empty()) return false;
      Enter(State::kContent);
      return true;
    }
    case State::kContent:
      return StepContent(parts);
    case State::kCall:
      return StepCall(parts);
    case State::kAfterCall:
      return StepAfterCall();
  }
  return false;
}

bool AnswerParser::StepBeginning() {
  const std::string_view text = held();
  const size_t begin = LeadingOf(text, kWhitespace);
  const std::string_view word = text.substr(begin);
  if (word.starts_with(kThinkBegin)) {
    Drop(begin + kThinkBegin.size());
    Enter(State::kReasoning);
    return true;
  }
  if (!finished_ && kThinkBegin.starts_with(word)) return false;
  Enter(format_.trim_beginning ? State::kAfterReasoning : State::kContent);
  return true;
}

bool AnswerParser::StepReasoning(std::vector<AnswerPart>& parts) {
  using Kind = AnswerPart::Kind;
  if (!reasoning_begun_) {
    Drop(LeadingOf(held(), kLineBreaks));
    if (held().empty()) return false;
    reasoning_begun_ = true;
  }
  const std::string_view text = held();
  const size_t end = text.find(kThinkEnd, searched_);
  if (end != std::string_view::npos) {
    const size_t kept = WithoutTrailing(text.substr(0, end), kLineBreaks);
    Emit(Kind::kReasoning, kept, parts);
    Drop(end - kept + kThinkEnd.size());
    Enter(State::kAfterReasoning);
    return true;
  }
  const size_t begun = finished_ ? 0 : BegunAtEnd(text, kThinkEnd);
  const std::string_view sure = text.substr(0, text.size() - begun);
  Emit(Kind::kReasoning, finished_ ? sure.size() : WithoutTrailing(sure, kLineBreaks), parts);
  searched_ = held().size() - begun;
  return false;
}

bool AnswerParser::StepContent(std::vector<AnswerPart>& parts) {
  using Kind = AnswerPart::Kind;
  if (format_.tools == nullptr) {
    Emit(Kind::kContent, held().size(), parts);
    return false;
  }
  const std::string_view text = held();
  const size_t at = text.find(kToolCallBegin, searched_);
  if (at != std::string_view::npos) {
    const size_t kept = WithoutTrailing(text.substr(0, at), kWhitespace);
    Emit(Kind::kContent, kept, parts);
    Enter(State::kCall);
    call_body_ = at - kept + kToolCallBegin.size();
    searched_ = call_body_;
    return true;
  }
  const size_t begun = finished_ ? 0 : BegunAtEnd(text, kToolCallBegin);
  const std::string_view sure = text.substr(0, text.size() - begun);
  Emit(Kind::kContent, finished_ ? sure.size() : WithoutTrailing(sure, kWhitespace), parts);
  searched_ = held().size() - begun;
  return false;
}

bool AnswerParser::StepCall(std::vector<AnswerPart>& parts) {
  const auto take = [&](ToolCallText call, size_t bytes) {
    parts.push_back(
        {AnswerPart::Kind::kCall, std::move(call.arguments_json), std::move(call.name)});
    ++call_count_;
    Drop(bytes);
    Enter(State::kAfterCall);
    return true;
  };
  const std::string_view text = held();
  bool broken = !MayBecomeToolCall(text.substr(call_body_), *format_.tools);
  while (!broken) {
    const size_t end = text.find(kToolCallEnd, searched_);
    const bool ended = end != std::string_view::npos;
    if (!ended && !finished_) {
      const size_t tail = std::min(text.size() - call_body_, kToolCallEnd.size() - 1);
      searched_ = text.size() - tail;
      return false;
    }
    const std::string_view body = text.substr(call_body_, ended ? end - call_body_ : end);
    std::optional<ToolCallText> call = ReadToolCall(body, *format_.tools);
    if (call.has_value()) {
      return take(*std::move(call), ended ? end + kToolCallEnd.size() : text.size());
    }
    broken = !ended;
    searched_ = end + kToolCallEnd.size();
  }
  // Its begin mark is content, and so is what follows, unless another call is in it.
  Emit(AnswerPart::Kind::kContent, call_body_, parts);
  Enter(State::kContent);
  return true;
}

bool AnswerParser::StepAfterCall() {
  Drop(LeadingOf(held(), kWhitespace));
  if (held().empty()) return false;
  Enter(State::kContent);
  return true;
}

void AnswerParser::Drop(size_t bytes) {
  begin_ += bytes;
  searched_ = 0;
}

void AnswerParser::Enter(State state) {
  state_ = state;
  searched_ = 0;
}

void AnswerParser::Emit(AnswerPart::Kind kind, size_t bytes, std::vector<AnswerPart>& parts) {
  const bool told = kind != AnswerPart::Kind::kReasoning || !format_.omit_reasoning;
  if (bytes > 0 && told) {
    const std::string_view piece = held().substr(0, bytes);
    if (!parts.empty() && parts.back().kind == kind && kind != AnswerPart::Kind::kCall) {
      parts.back().text += piece;
    } else {
      parts.push_back({kind, std::string(piece), ""});
    }
  }
  Drop(bytes);
}

}  // namespace hearth
