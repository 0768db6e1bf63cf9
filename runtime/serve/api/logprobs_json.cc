#include "runtime/serve/api/logprobs_json.h"

#include <cmath>
#include <string>

#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

// Clients want a number where the model gave a token no chance at all.
constexpr double kImpossible = -9999;

double Finite(float logprob) { return std::isfinite(logprob) ? double{logprob} : kImpossible; }

std::string TextOf(std::string_view bytes) {
  std::string text;
  AppendReplacingBroken(bytes, text);
  return text;
}

Json ChatToken(const TokenLogprob& token, const Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.TokenBytes(token.token);
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return Json{
      {"token", TextOf(bytes)}, {"logprob", Finite(token.logprob)}, {"bytes", std::move(list)}};
}

}  // namespace

Json ChatLogprobs(std::span<const TokenReport> reports, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const TokenReport& report : reports) {
    Json entry = ChatToken(report.chosen, tokenizer);
    Json top = Json::array();
    for (const TokenLogprob& token : report.top) top.push_back(ChatToken(token, tokenizer));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

Json CompletionLogprobs(std::span<const TokenReport> reports, const Tokenizer& tokenizer,
                        uint64_t& offset) {
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenReport& report : reports) {
    const std::string text = TextOf(tokenizer.TokenBytes(report.chosen.token));
    Json top = Json::object();
    for (const TokenLogprob& token : report.top) {
      top[TextOf(tokenizer.TokenBytes(token.token))] = Finite(token.logprob);
    }
    tokens.push_back(text);
    logprobs.push_back(Finite(report.chosen.logprob));
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    for (const char byte : text) offset += (static_cast<uint8_t>(byte) & 0xC0) != 0x80 ? 1 : 0;
  }
  return Json{{"tokens", std::move(tokens)},
              {"token_logprobs", std::move(logprobs)},
              {"top_logprobs", std::move(tops)},
              {"text_offset", std::move(offsets)}};
}

}  // namespace hearth
