// What the API needs to know of the model that it serves: names, sizes, tokenizer, chat template
// and what that template can do, and the sampling that the model's makers advise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/chat/chat_template.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/api/constraint_source.h"
#include "runtime/serve/api/control_text_guard.h"

namespace hearth {

// generation_config.json: what holds where a request is silent. Without the file, or without
// do_sample in it, OpenAI's defaults: temperature 1, top_p 1, no top_k.
struct SamplingDefaults {
  float temperature = 1;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
};

// InvalidArgument names `path`, field and finding. do_sample false means temperature 0. Fields that
// say nothing about sampling are ignored.
absl::StatusOr<SamplingDefaults> ParseGenerationConfig(std::string_view json_text,
                                                       const std::string& path);

// What a chat template does with its inputs, found out by rendering with and without them.
struct ChatAbilities {
  bool tools = false;                // prints the tools it is given and past calls
  bool system = false;               // prints a system message
  bool reasoning = false;            // knows reasoning at all: opens it or prints a past one
  bool reasoning_switch = false;     // enable_thinking changes the prompt
  std::vector<std::string> efforts;  // values of reasoning_effort it knows, lowest first; empty:
                                     // the variable changes nothing
};
ChatAbilities ProbeChatTemplate(const ChatTemplate& chat, const ChatRequest& base);

// Borrowed by every call: outlives them all. Immutable, any number of threads may read it.
struct ModelFacts {
  std::string id;                    // of /v1/models; a request names it, an alias, or nothing
  std::vector<std::string> aliases;  // other names that requests may use
  bool any_name = false;             // every name a request may use means this model
  int64_t created_sec = 0;           // Unix time
  uint32_t context_tokens = 0;       // prompt and answer together
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat = nullptr;  // null: a model without one; chat is refused
  ChatAbilities abilities;             // of `chat`
  ChatRequest chat_base;               // bos, eos and pad token; its messages are not looked at
  const ControlTextGuard* guard = nullptr;        // of `tokenizer`
  const ConstraintSource* constraints = nullptr;  // null: constrained answers are refused
  SamplingDefaults defaults;
  int64_t timeout_max_ns = 0;  // requests may not ask for more; 0: any
};

bool NamesModel(const ModelFacts& facts, std::string_view name);

}  // namespace hearth
