#include "runtime/serve/api/anthropic_writer.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/answer_reader.h"
#include "runtime/serve/api/strict_json.h"
#include "runtime/serve/api/usage_json.h"

namespace hearth {
namespace {

using Kind = AnswerPart::Kind;

// Clients hand it back with a thinking block; nothing is read from it.
constexpr char kSignature[] = "hearth";

std::string Event(const Json& json) {
  return absl::StrCat("event: ", json["type"].get_ref<const std::string&>(),
                      "\ndata: ", DumpJson(json), "\n\n");
}

class MessageWriter final : public AnswerWriter {
 public:
  MessageWriter(const ApiCall& call, const ReplyIdentity& identity)
      : stream_(call.stream),
        model_(call.model),
        prompt_tokens_(call.prompt_tokens),
        stops_(call.client_stops),
        identity_(identity),
        reader_(call.format) {}

  bool streams() const override { return stream_; }

  std::string Begin() override {
    if (!stream_) return "";
    Json message = Head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = Json{{"input_tokens", prompt_tokens_}, {"output_tokens", 0}};
    return Event(Json{{"type", "message_start"}, {"message", std::move(message)}}) + Ping();
  }

  std::string Delta(const CompletionDelta& delta) override {
    std::vector<AnswerPart> parts = reader_.Read(delta);
    if (stream_) return Stream(parts);
    AppendParts(std::move(parts), parts_);
    return "";
  }

  std::string End(const CompletionEnd& end) override {
    std::vector<AnswerPart> parts = reader_.Finish();
    if (!stream_) {
      AppendParts(std::move(parts), parts_);
      return Whole(end);
    }
    std::string out = Stream(parts);
    out += CloseBlock();
    Json delta{{"stop_reason", StopReason(end)}};
    delta["stop_sequence"] = StopSequence(end);
    out += Event(Json{
        {"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", AnthropicUsage(end)}});
    return out + Event(Json{{"type", "message_stop"}});
  }

  std::string Error(const absl::Status& status) override {
    std::string body = MakeErrorReply(Dialect::kAnthropic, status).body;
    return stream_ ? absl::StrCat("event: error\ndata: ", body, "\n\n") : body;
  }

  std::string KeepAlive() override { return stream_ ? Ping() : ""; }

 private:
  static std::string Ping() { return Event(Json{{"type", "ping"}}); }

  Json Head() const {
    return Json{{"id", absl::StrCat("msg_", identity_.unique)},
                {"type", "message"},
                {"role", "assistant"},
                {"model", model_}};
  }

  Json StopSequence(const CompletionEnd& end) const {
    for (const std::string& stop : stops_) {
      if (end.finish == FinishReason::kStop && end.stop_string == stop) return Json(stop);
    }
    return nullptr;
  }

  const char* StopReason(const CompletionEnd& end) const {
    if (end.finish == FinishReason::kLength) return "max_tokens";
    if (!StopSequence(end).is_null()) return "stop_sequence";
    return reader_.call_count() > 0 ? "tool_use" : "end_turn";
  }

  std::string CallId(uint32_t index) const {
    return absl::StrCat("toolu_", identity_.unique, "_", index);
  }

  std::string BlockDelta(Json delta) const {
    return Event(Json{
        {"type", "content_block_delta"}, {"index", block_index_}, {"delta", std::move(delta)}});
  }

  std::string OpenBlock(Kind kind, Json block) {
    open_ = kind;
    return Event(Json{{"type", "content_block_start"},
                      {"index", block_index_},
                      {"content_block", std::move(block)}});
  }

  std::string CloseBlock() {
    if (!open_.has_value()) return "";
    std::string out;
    if (*open_ == Kind::kReasoning) {
      out += BlockDelta(Json{{"type", "signature_delta"}, {"signature", kSignature}});
    }
    out += Event(Json{{"type", "content_block_stop"}, {"index", block_index_}});
    ++block_index_;
    open_.reset();
    return out;
  }

  std::string Stream(const std::vector<AnswerPart>& parts) {
    std::string out;
    for (const AnswerPart& part : parts) {
      if (part.kind == Kind::kCall) {
        out += StreamCall(part);
        continue;
      }
      const bool thinking = part.kind == Kind::kReasoning;
      if (open_ != part.kind) {
        out += CloseBlock();
        out += OpenBlock(part.kind,
                         thinking ? Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}
                                  : Json{{"type", "text"}, {"text", ""}});
      }
      out += BlockDelta(thinking ? Json{{"type", "thinking_delta"}, {"thinking", part.text}}
                                 : Json{{"type", "text_delta"}, {"text", part.text}});
    }
    return out;
  }

  std::string StreamCall(const AnswerPart& part) {
    std::string out = CloseBlock();
    out += OpenBlock(Kind::kCall, Json{{"type", "tool_use"},
                                       {"id", CallId(call_index_++)},
                                       {"name", part.call_name},
                                       {"input", Json::object()}});
    for (const std::string_view piece : Pieces(part.text, kArgumentPieceBytes)) {
      out += BlockDelta(Json{{"type", "input_json_delta"}, {"partial_json", std::string(piece)}});
    }
    return out + CloseBlock();
  }

  std::string Whole(const CompletionEnd& end) {
    Json content = Json::array();
    for (const AnswerPart& part : parts_) {
      if (part.kind == Kind::kReasoning) {
        content.push_back(
            Json{{"type", "thinking"}, {"thinking", part.text}, {"signature", kSignature}});
      } else if (part.kind == Kind::kContent) {
        content.push_back(Json{{"type", "text"}, {"text", part.text}});
      } else {
        const absl::StatusOr<Json> input = ParseStrictJson(part.text, "arguments");
        content.push_back(Json{{"type", "tool_use"},
                               {"id", CallId(call_index_++)},
                               {"name", part.call_name},
                               {"input", input.ok() ? *input : Json::object()}});
      }
    }
    Json body = Head();
    body["content"] = std::move(content);
    body["stop_reason"] = StopReason(end);
    body["stop_sequence"] = StopSequence(end);
    body["usage"] = AnthropicUsage(end);
    return DumpJson(body);
  }

  const bool stream_;
  const std::string model_;
  const uint32_t prompt_tokens_;
  const std::vector<std::string> stops_;  // the client's own
  const ReplyIdentity identity_;
  AnswerReader reader_;
  std::vector<AnswerPart> parts_;  // of a reply that does not stream
  std::optional<Kind> open_;       // the block that is being told
  uint32_t block_index_ = 0;
  uint32_t call_index_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeAnthropicWriter(const ApiCall& call,
                                                  const ReplyIdentity& identity) {
  return std::make_unique<MessageWriter>(call, identity);
}

}  // namespace hearth
