// A model as the API sees it, without its weights: Flashlet's tokenizer, and a template in the
// manner of Qwen with tools and reasoning, or Flashlet's own, which knows neither.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/model/chat/chat_template.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/api/api_call.h"
#include "runtime/serve/api/model_facts.h"

namespace hearth {

// Keeps what it was asked for; gives constraints that constrain nothing.
class RecordingConstraints final : public ConstraintSource {
 public:
  absl::StatusOr<std::shared_ptr<TokenConstraint>> Make(const ConstraintWish& wish) const override;
  mutable std::optional<ConstraintWish> last;
  absl::Status refusal;  // where not OK, what Make answers
};

class ApiModel {
 public:
  enum class Template : uint8_t { kQwen, kPlain };
  explicit ApiModel(Template which = Template::kQwen);
  explicit ApiModel(const std::string& template_source);

  ModelFacts facts;
  RecordingConstraints constraints;

  // The parsed body; fails the test where it is refused.
  ApiCall Call(std::string_view body, Dialect dialect = Dialect::kOpenAiChat) const;
  // Why it is refused; OK where it is not.
  absl::Status Refusal(std::string_view body, Dialect dialect = Dialect::kOpenAiChat) const;
  // The reply to a refused body.
  nlohmann::json Error(std::string_view body, Dialect dialect = Dialect::kOpenAiChat) const;
  std::string Text(const std::vector<TokenId>& tokens) const;

 private:
  void Load(const std::string& template_source);
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_;
  std::unique_ptr<ControlTextGuard> guard_;
};

std::string ReadSource(const std::string& path);  // a file of the source tree

// The data of each event of a stream, "[DONE]" too; fails the test where one is not valid UTF-8 or
// no whole event.
std::vector<std::string> EventData(std::string_view stream);
// Each event's data as JSON; [DONE] is left out.
std::vector<nlohmann::json> Events(std::string_view stream);

}  // namespace hearth
