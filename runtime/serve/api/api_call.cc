#include "runtime/serve/api/api_call.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/anthropic_request.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/openai_request.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {
namespace {

absl::StatusOr<ApiCall> Parse(Dialect dialect, const Fields& body, const ModelFacts& facts,
                              const CallContext& context) {
  switch (dialect) {
    case Dialect::kOpenAiChat:
      return ParseOpenAiChat(body, facts, context);
    case Dialect::kOpenAiCompletion:
      return ParseOpenAiCompletion(body, facts, context);
    case Dialect::kAnthropic:
      return ParseAnthropic(body, facts, context, MaxTokens::kRequired);
  }
  return absl::InternalError("unknown dialect");
}

}  // namespace

absl::StatusOr<ApiCall> ParseApiCall(Dialect dialect, std::string_view body,
                                     const ModelFacts& facts, const CallContext& context) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(body, "the body"));
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, ""));
  HEARTH_ASSIGN_OR_RETURN(ApiCall call, Parse(dialect, fields, facts, context));
  call.prompt_tokens = static_cast<uint32_t>(call.request.prompt.size());
  return call;
}

}  // namespace hearth
