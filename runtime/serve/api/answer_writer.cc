#include "runtime/serve/api/answer_writer.h"

#include "runtime/serve/api/anthropic_writer.h"
#include "runtime/serve/api/openai_writer.h"

namespace hearth {

std::unique_ptr<AnswerWriter> MakeAnswerWriter(const ApiCall& call, const ModelFacts& facts,
                                               const ReplyIdentity& identity) {
  switch (call.dialect) {
    case Dialect::kOpenAiCompletion:
      return MakeOpenAiCompletionWriter(call, facts, identity);
    case Dialect::kAnthropic:
      return MakeAnthropicWriter(call, identity);
    case Dialect::kOpenAiChat:
      break;
  }
  return MakeOpenAiChatWriter(call, facts, identity);
}

}  // namespace hearth
