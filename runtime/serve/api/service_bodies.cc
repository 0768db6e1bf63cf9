#include "runtime/serve/api/service_bodies.h"

#include <array>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "runtime/base/status.h"
#include "runtime/model/tokenizer/utf8.h"
#include "runtime/serve/api/anthropic_request.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/openai_request.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, 8> kTokenizeNames = {"model",       "prompt",
                                                            "content",     "parse_special",
                                                            "with_pieces", "return_token_strs",
                                                            "add_special", "add_special_tokens"};
constexpr std::array<std::string_view, 2> kDetokenizeNames = {"model", "tokens"};

// As short as tells the value: 0.95, not what it is as a double.
Json Shortest(float value) {
  double shortest = 0;
  return absl::SimpleAtod(absl::StrCat(value), &shortest) ? Json(shortest) : Json(value);
}

Json HearthModel(const ModelFacts& facts) {
  const SamplingDefaults& defaults = facts.defaults;
  Json efforts = Json::array();
  for (const std::string& effort : facts.abilities.efforts) efforts.push_back(effort);
  return Json{{"context_tokens", facts.context_tokens},
              {"chat", facts.chat != nullptr},
              {"tools", facts.abilities.tools},
              {"reasoning", facts.abilities.reasoning},
              {"reasoning_efforts", std::move(efforts)},
              {"constrained_answers", facts.constraints != nullptr},
              {"defaults", Json{{"temperature", Shortest(defaults.temperature)},
                                {"top_k", defaults.top_k},
                                {"top_p", Shortest(defaults.top_p)},
                                {"min_p", Shortest(defaults.min_p)},
                                {"repetition_penalty", Shortest(defaults.repetition_penalty)}}}};
}

Json ModelJson(Dialect dialect, const ModelFacts& facts) {
  if (dialect == Dialect::kAnthropic) {
    const std::string created = absl::FormatTime(
        "%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(facts.created_sec), absl::UTCTimeZone());
    return Json{{"type", "model"},
                {"id", facts.id},
                {"display_name", facts.id},
                {"created_at", created},
                {"hearth", HearthModel(facts)}};
  }
  return Json{{"id", facts.id},
              {"object", "model"},
              {"created", facts.created_sec},
              {"owned_by", "hearth"},
              {"max_model_len", facts.context_tokens},
              {"hearth", HearthModel(facts)}};
}

absl::StatusOr<std::vector<TokenId>> TokensToShow(const Fields& fields, const ModelFacts& facts) {
  HEARTH_RETURN_IF_ERROR(fields.Only({kTokenizeNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto prompt, fields.Text("prompt"));
  HEARTH_ASSIGN_OR_RETURN(const auto content, fields.Text("content"));
  if (prompt.has_value() == content.has_value()) {
    return fields.Error("prompt", "expected a text under \"prompt\" or \"content\", or messages",
                        "missing_required_parameter");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto parse, fields.Bool("parse_special"));
  // This family's tokenizers add no token of their own: both answers are the same.
  HEARTH_RETURN_IF_ERROR(fields.Bool("add_special").status());
  HEARTH_RETURN_IF_ERROR(fields.Bool("add_special_tokens").status());
  return facts.tokenizer->Encode(
      prompt.has_value() ? *prompt : *content,
      parse.value_or(true) ? SpecialTokens::kParse : SpecialTokens::kAsText);
}

// The body without the members that only /tokenize knows.
Json WithoutOwnNames(const Json& json) {
  Json rest = Json::object();
  for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) {
    const bool own = name == "with_pieces" || name == "return_token_strs" ||
                     name == "add_special_tokens" || name == "add_generation_prompt";
    if (!own) rest[name] = value;
  }
  return rest;
}

}  // namespace

std::string ModelsBody(Dialect dialect, const ModelFacts& facts) {
  Json data = Json::array();
  data.push_back(ModelJson(dialect, facts));
  if (dialect == Dialect::kAnthropic) {
    return DumpJson(Json{{"data", std::move(data)},
                         {"has_more", false},
                         {"first_id", facts.id},
                         {"last_id", facts.id}});
  }
  return DumpJson(Json{{"object", "list"}, {"data", std::move(data)}});
}

absl::StatusOr<std::string> ModelBody(Dialect dialect, const ModelFacts& facts,
                                      std::string_view name) {
  if (NamesModel(facts, name)) return DumpJson(ModelJson(dialect, facts));
  return AtField(
      absl::NotFoundError(absl::StrCat("no model of that name; this server has '", facts.id, "'")),
      "model", "model_not_found");
}

std::string HealthBody(const Health& health) {
  const char* status = health.stopping ? "stopping" : health.ready ? "ok" : "starting";
  return DumpJson(Json{{"status", status},
                       {"requests_running", health.requests_running},
                       {"requests_waiting", health.requests_waiting}});
}

absl::StatusOr<std::string> TokenizeBody(std::string_view body, const ModelFacts& facts) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(body, "the body"));
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, ""));
  HEARTH_ASSIGN_OR_RETURN(const auto pieces, fields.Bool("with_pieces"));
  HEARTH_ASSIGN_OR_RETURN(const auto strings, fields.Bool("return_token_strs"));
  std::vector<TokenId> tokens;
  if (fields.Has("messages")) {
    const Json rest = WithoutOwnNames(json);
    HEARTH_ASSIGN_OR_RETURN(const Fields chat, Fields::Of(rest, ""));
    HEARTH_ASSIGN_OR_RETURN(ApiCall call, ParseOpenAiChat(chat, facts, {}));
    tokens = std::move(call.request.prompt);
  } else {
    HEARTH_ASSIGN_OR_RETURN(tokens, TokensToShow(fields, facts));
  }
  Json reply{{"tokens", tokens}, {"count", tokens.size()}};
  reply["max_model_len"] = facts.context_tokens;
  if (pieces.value_or(false) || strings.value_or(false)) {
    Json texts = Json::array();
    for (const TokenId token : tokens) {
      std::string text;
      AppendReplacingBroken(facts.tokenizer->TokenBytes(token), text);
      texts.push_back(std::move(text));
    }
    reply["token_strs"] = std::move(texts);
  }
  return DumpJson(reply);
}

absl::StatusOr<std::string> DetokenizeBody(std::string_view body, const ModelFacts& facts) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(body, "the body"));
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, ""));
  HEARTH_RETURN_IF_ERROR(fields.Only({kDetokenizeNames}));
  HEARTH_ASSIGN_OR_RETURN(const Json* list, fields.Array("tokens"));
  if (list == nullptr) {
    return fields.Error("tokens", "missing, expected a list of token ids",
                        "missing_required_parameter");
  }
  std::vector<TokenId> tokens;
  for (const Json& token : *list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= facts.tokenizer->vocab_count()) {
      return fields.Error("tokens", absl::StrCat("expected token ids from 0 to ",
                                                 facts.tokenizer->vocab_count() - 1));
    }
    tokens.push_back(token.get<TokenId>());
  }
  const std::string text = facts.tokenizer->Decode(tokens, SkipSpecial::kNo);
  return DumpJson(Json{{"prompt", text}, {"content", text}});
}

absl::StatusOr<std::string> CountTokensBody(std::string_view body, const ModelFacts& facts) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(body, "the body"));
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, ""));
  HEARTH_ASSIGN_OR_RETURN(const ApiCall call,
                          ParseAnthropic(fields, facts, {}, MaxTokens::kOptional));
  return DumpJson(Json{{"input_tokens", call.request.prompt.size()}});
}

absl::Status NotServed(std::string_view what) {
  return WithHttpStatus(
      absl::UnimplementedError(absl::StrCat(
          "This server does not serve ", ToAbsl(what),
          "; it serves /v1/chat/completions, /v1/completions, /v1/messages, /v1/models, /tokenize "
          "and /detokenize.")),
      501);
}

}  // namespace hearth
