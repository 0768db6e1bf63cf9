#include "tests/runtime/serve/api/api_fixture.h"

#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

class FreeConstraint final : public TokenConstraint {
 public:
  std::span<const uint64_t> Allowed() override { return {}; }
  void Push(TokenId) override {}
  void PopTo(uint32_t) override {}
};

}  // namespace

absl::StatusOr<std::shared_ptr<TokenConstraint>> RecordingConstraints::Make(
    const ConstraintWish& wish) const {
  last = wish;
  if (!refusal.ok()) return refusal;
  return std::make_shared<FreeConstraint>();
}

std::string ReadSource(const std::string& path) {
  auto text = ReadFile(std::string(HEARTH_SOURCE_DIR) + "/" + path, 64 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

ApiModel::ApiModel(Template which) {
  Load(ReadSource(which == Template::kQwen ? "tests/golden/chat/templates/qwen_style.jinja"
                                           : "profiles/flashlet/chat_template.jinja"));
}

ApiModel::ApiModel(const std::string& template_source) { Load(template_source); }

void ApiModel::Load(const std::string& template_source) {
  auto tokenizer = Tokenizer::FromJson(ReadSource("profiles/flashlet/tokenizer.json"), "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  tokenizer_ = std::make_unique<Tokenizer>(*std::move(tokenizer));
  auto chat = ChatTemplate::Parse(template_source, "t.jinja");
  EXPECT_TRUE(chat.ok()) << chat.status();
  chat_ = std::make_unique<ChatTemplate>(*std::move(chat));
  guard_ = std::make_unique<ControlTextGuard>(*tokenizer_);
  facts.id = "flashlet";
  facts.created_sec = 1'700'000'000;
  facts.context_tokens = 4096;
  facts.tokenizer = tokenizer_.get();
  facts.chat = chat_.get();
  facts.guard = guard_.get();
  facts.constraints = &constraints;
  facts.abilities = ProbeChatTemplate(*chat_, facts.chat_base);
  facts.defaults = {.temperature = 1, .top_k = 20, .top_p = 0.95F};
}

ApiCall ApiModel::Call(std::string_view body, Dialect dialect) const {
  auto call = ParseApiCall(dialect, body, facts, {.seed = 77});
  EXPECT_TRUE(call.ok()) << call.status() << "\n" << body;
  return call.ok() ? *std::move(call) : ApiCall{};
}

absl::Status ApiModel::Refusal(std::string_view body, Dialect dialect) const {
  return ParseApiCall(dialect, body, facts, {}).status();
}

nlohmann::json ApiModel::Error(std::string_view body, Dialect dialect) const {
  const ErrorReply reply = MakeErrorReply(dialect, Refusal(body, dialect));
  nlohmann::json json = nlohmann::json::parse(reply.body, nullptr, false)["error"];
  json["status"] = reply.http_status;
  return json;
}

std::string ApiModel::Text(const std::vector<TokenId>& tokens) const {
  return tokenizer_->Decode(tokens, SkipSpecial::kNo);
}

std::vector<std::string> EventData(std::string_view stream) {
  std::vector<std::string> all;
  EXPECT_TRUE(IsValidUtf8(stream));
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "cut event: " << stream;
    if (end == std::string_view::npos) return all;
    std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (event.starts_with(':')) continue;
    if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string_view::npos) << event;
    all.emplace_back(event.substr(6));
  }
  return all;
}

std::vector<nlohmann::json> Events(std::string_view stream) {
  std::vector<nlohmann::json> all;
  for (const std::string& data : EventData(stream)) {
    if (data == "[DONE]") continue;
    all.push_back(nlohmann::json::parse(data, nullptr, false));
    EXPECT_FALSE(all.back().is_discarded()) << data;
  }
  return all;
}

}  // namespace hearth
