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
  Kind kind;
  std::string text;            // whole characters; for a call its arguments as JSON, an object
  std::string call_name = "";  // for a call
};

// A call is told once it is complete; what never becomes one is content, byte for byte. White space
// around reasoning and between calls, which templates print again by themselves, is dropped.
//
//   <think>\nREASONING\n</think>\n\nCONTENT\n\n<tool_call>\n<function=NAME>\n<parameter=P>\nVALUE\n
//   </parameter>\n</function>\n</tool_call>        or        <tool_call>{"name":...,
//   "arguments":...}
//   </tool_call>
class AnswerParser {
 public:
  explicit AnswerParser(AnswerFormat format);

  // Appends what became certain. Adjacent parts of one kind are one.
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

  bool Step(std::vector<AnswerPart>& parts);
  void Emit(AnswerPart::Kind kind, std::string_view text, std::vector<AnswerPart>& parts);

  const AnswerFormat format_;
  Utf8Joiner joiner_;
  State state_;
  std::string held_;  // not yet certain
  bool finished_ = false;
  uint32_t call_count_ = 0;
};

}  // namespace hearth
