// Takes an answer's text apart as it comes: reasoning, content, calls of tools. How the text is cut
// into pieces changes nothing in what comes out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/tokenizer/stream_decoder.h"
#include "runtime/serve/api/api_call.h"

namespace hearth {

struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };
  Kind kind = Kind::kContent;
  std::string text;       // whole characters; of a call its arguments as JSON, an object
  std::string call_name;  // of a call
  bool operator==(const AnswerPart&) const = default;
};

// A call is told once it is complete; what never becomes one is content, byte for byte. Line breaks
// around reasoning and white space around calls, which templates print by themselves, are dropped.
//
//   <think>\nREASONING\n</think>\n\nCONTENT\n\n<tool_call>\nCALL\n</tool_call>
//
// CALL: see tool_call_text.h. The last end mark may be missing.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerFormat format);

  // Appends what became certain.
  void Push(std::string_view text, std::vector<AnswerPart>& parts);
  // The answer is over: what was held back is certain now.
  void Finish(std::vector<AnswerPart>& parts);

  bool in_reasoning() const { return state_ == State::kReasoning; }
  uint32_t call_count() const { return call_count_; }

 private:
  enum class State : uint8_t {
    kBeginning,
    kReasoning,
    kAfterReasoning,
    kContent,
    kCall,
    kAfterCall
  };

  void Run(std::vector<AnswerPart>& parts);
  // One step; false where more text is needed.
  bool Step(std::vector<AnswerPart>& parts);
  bool StepBeginning();
  bool StepReasoning(std::vector<AnswerPart>& parts);
  bool StepContent(std::vector<AnswerPart>& parts);
  bool StepCall(std::vector<AnswerPart>& parts);
  bool StepAfterCall();

  std::string_view held() const { return std::string_view(text_).substr(begin_); }
  void Drop(size_t bytes);
  void Enter(State state);
  // Gives away the first bytes of held().
  void Emit(AnswerPart::Kind kind, size_t bytes, std::vector<AnswerPart>& parts);

  const AnswerFormat format_;
  Utf8Joiner joiner_;
  State state_ = State::kContent;
  bool finished_ = false;
  uint32_t call_count_ = 0;
  std::string text_;  // what is not yet certain begins at begin_
  size_t begin_ = 0;
  size_t searched_ = 0;   // bytes of held() in which nothing was found
  size_t call_body_ = 0;  // in kCall: where in held() the call's body begins
  bool reasoning_begun_ = false;
};

}  // namespace hearth
