// Any bytes as the body of a request to the API: refused in words of ours that hold none of its
// bytes, or a call within the model's limits.
//
// Input: one byte that chooses the endpoint, then the body.
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/serve/api/api_call.h"
#include "runtime/serve/api/api_error.h"
#include "runtime/serve/api/service_bodies.h"
#include "tests/runtime/serve/api/api_fixture.h"

namespace {

void CheckError(const absl::Status& status) {
  HEARTH_CHECK(!status.message().empty() && status.message().size() < 4096);
  for (const char c : status.message()) HEARTH_CHECK(c >= 0x20 && c < 0x7f);
}

void TryCall(hearth::Dialect dialect, std::string_view body, const hearth::ModelFacts& facts) {
  const absl::StatusOr<hearth::ApiCall> call =
      hearth::ParseApiCall(dialect, body, facts, {.seed = 7});
  if (!call.ok()) return CheckError(call.status());
  HEARTH_CHECK(!call->request.prompt.empty());
  HEARTH_CHECK(call->request.prompt.size() == call->prompt_tokens);
  HEARTH_CHECK(call->prompt_tokens < facts.context_tokens);
  HEARTH_CHECK(call->request.top_logprobs <= 20);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hearth::ApiModel model;  // its tokenizer takes a tenth of a second to load
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto check = [](const absl::StatusOr<std::string>& answer) {
    if (!answer.ok()) CheckError(answer.status());
  };
  switch (data[0] % 6) {
    case 0:
      TryCall(hearth::Dialect::kOpenAiChat, body, model.facts);
      break;
    case 1:
      TryCall(hearth::Dialect::kOpenAiCompletion, body, model.facts);
      break;
    case 2:
      TryCall(hearth::Dialect::kAnthropic, body, model.facts);
      break;
    case 3:
      check(hearth::TokenizeBody(body, model.facts));
      break;
    case 4:
      check(hearth::DetokenizeBody(body, model.facts));
      break;
    default:
      check(hearth::CountTokensBody(body, model.facts));
  }
  return 0;
}
