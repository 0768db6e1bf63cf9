#include "runtime/serve/api/model_facts.h"

#include <optional>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {
namespace {

constexpr double kTemperatureMax = 100;
constexpr double kRepetitionPenaltyMin = 0.01;
constexpr double kRepetitionPenaltyMax = 100;
constexpr std::string_view kThinkOpen = "<think>";

// Words that no template prints by itself.
constexpr char kUserProbe[] = "hearthprobeuser";
constexpr char kSystemProbe[] = "hearthprobesystem";
constexpr char kToolProbe[] = "hearthprobetool";
constexpr char kReasoningProbe[] = "hearthprobereasoning";

class Prober {
 public:
  Prober(const ChatTemplate& chat, const ChatRequest& base) : chat_(chat), base_(base) {}

  // Empty where the template refuses.
  std::string Render(const Json& messages, const Json& tools, const Json& variables) const {
    ChatRequest request = base_;
    request.messages_json = DumpJson(messages);
    if (!tools.is_null()) request.tools_json = DumpJson(tools);
    if (!variables.empty()) request.variables_json = DumpJson(variables);
    absl::StatusOr<std::string> text = chat_.Render(request);
    return text.ok() ? *std::move(text) : "";
  }
  std::string User(const Json& variables = Json::object()) const {
    return Render(Json::array({Turn("user", kUserProbe)}), nullptr, variables);
  }
  static Json Turn(const char* role, const char* content) {
    return Json{{"role", role}, {"content", content}};
  }

 private:
  const ChatTemplate& chat_;
  const ChatRequest& base_;
};

bool Holds(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

bool PrintsTools(const Prober& prober) {
  const Json tools = Json::array(
      {Json{{"type", "function"},
            {"function",
             Json{{"name", kToolProbe},
                  {"description", "a probe"},
                  {"parameters", Json{{"type", "object"}, {"properties", Json::object()}}}}}}});
  return Holds(
      prober.Render(Json::array({Prober::Turn("user", kUserProbe)}), tools, Json::object()),
      kToolProbe);
}

bool PrintsReasoning(const Prober& prober) {
  Json answer = Prober::Turn("assistant", "answer");
  answer["reasoning_content"] = kReasoningProbe;
  const Json messages = Json::array({Prober::Turn("user", kUserProbe), std::move(answer)});
  return Holds(prober.Render(messages, nullptr, Json::object()), kReasoningProbe);
}

}  // namespace

absl::StatusOr<SamplingDefaults> ParseGenerationConfig(std::string_view json_text,
                                                       const std::string& path) {
  const auto parse = [&]() -> absl::StatusOr<SamplingDefaults> {
    HEARTH_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(json_text, "the file"));
    HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(json, ""));
    SamplingDefaults defaults;
    HEARTH_ASSIGN_OR_RETURN(const auto sample, fields.Bool("do_sample"));
    if (!sample.has_value()) return defaults;
    HEARTH_ASSIGN_OR_RETURN(
        const auto penalty,
        fields.Number("repetition_penalty", {kRepetitionPenaltyMin, kRepetitionPenaltyMax}));
    if (penalty.has_value()) defaults.repetition_penalty = static_cast<float>(*penalty);
    if (!*sample) {
      defaults.temperature = 0;
      return defaults;
    }
    HEARTH_ASSIGN_OR_RETURN(const auto temperature,
                            fields.Number("temperature", {0, kTemperatureMax}));
    if (temperature.has_value()) defaults.temperature = static_cast<float>(*temperature);
    HEARTH_ASSIGN_OR_RETURN(const auto top_k, fields.Integer("top_k", {0, INT32_MAX}));
    if (top_k.has_value()) defaults.top_k = static_cast<uint32_t>(*top_k);
    HEARTH_ASSIGN_OR_RETURN(const auto top_p, fields.Number("top_p", {0, 1}));
    if (top_p.has_value()) defaults.top_p = static_cast<float>(*top_p);
    HEARTH_ASSIGN_OR_RETURN(const auto min_p, fields.Number("min_p", {0, 1}));
    if (min_p.has_value()) defaults.min_p = static_cast<float>(*min_p);
    return defaults;
  };
  absl::StatusOr<SamplingDefaults> defaults = parse();
  if (!defaults.ok()) return Annotate(defaults.status(), path);
  return defaults;
}

ChatAbilities ProbeChatTemplate(const ChatTemplate& chat, const ChatRequest& base) {
  const Prober prober(chat, base);
  const std::string plain = prober.User();
  ChatAbilities abilities;
  abilities.tools = PrintsTools(prober);
  const Json with_system =
      Json::array({Prober::Turn("system", kSystemProbe), Prober::Turn("user", kUserProbe)});
  abilities.system = Holds(prober.Render(with_system, nullptr, Json::object()), kSystemProbe);
  const std::string on = prober.User(Json{{"enable_thinking", true}});
  const std::string off = prober.User(Json{{"enable_thinking", false}});
  abilities.reasoning_switch = !on.empty() && !off.empty() && on != off;
  abilities.reasoning =
      Holds(plain, kThinkOpen) || abilities.reasoning_switch || PrintsReasoning(prober);
  bool differ = false;
  std::optional<std::string> first;
  for (const char* effort : {"minimal", "low", "medium", "high", "xhigh"}) {
    const std::string text = prober.User(Json{{"reasoning_effort", effort}});
    if (text.empty()) {
      differ = true;  // a template that refuses some looks at all
      continue;
    }
    if (!first.has_value()) first = text;
    differ = differ || text != *first;
    abilities.efforts.emplace_back(effort);
  }
  if (!differ || plain.empty()) abilities.efforts.clear();
  return abilities;
}

bool NamesModel(const ModelFacts& facts, std::string_view name) {
  if (facts.any_name || name == facts.id) return true;
  for (const std::string& alias : facts.aliases) {
    if (name == alias) return true;
  }
  return false;
}

}  // namespace hearth
