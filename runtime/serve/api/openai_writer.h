// OpenAI's replies: chat.completion and its chunks, text_completion.
#pragma once

#include <memory>
#include <string>

#include "runtime/serve/api/answer_writer.h"

namespace hearth {

std::unique_ptr<AnswerWriter> MakeOpenAiChatWriter(const ApiCall& call, const ModelFacts& facts,
                                                   const ReplyIdentity& identity);
std::unique_ptr<AnswerWriter> MakeOpenAiCompletionWriter(const ApiCall& call,
                                                         const ModelFacts& facts,
                                                         const ReplyIdentity& identity);

}  // namespace hearth
