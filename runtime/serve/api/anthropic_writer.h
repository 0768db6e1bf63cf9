// Anthropic's replies: a message, or the events that build one.
#pragma once

#include <memory>

#include "runtime/serve/api/answer_writer.h"

namespace hearth {

std::unique_ptr<AnswerWriter> MakeAnthropicWriter(const ApiCall& call,
                                                  const ReplyIdentity& identity);

}  // namespace hearth
