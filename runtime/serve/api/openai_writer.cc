#include "runtime/serve/api/openai_writer.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/answer_reader.h"
#include "runtime/serve/api/logprobs_json.h"
#include "runtime/serve/api/strict_json.h"
#include "runtime/serve/api/usage_json.h"

namespace hearth {
namespace {

using Kind = AnswerPart::Kind;

constexpr char kDone[] = "data: [DONE]\n\n";
constexpr char kComment[] = ": still working\n\n";

std::string Event(const Json& json) { return absl::StrCat("data: ", DumpJson(json), "\n\n"); }

// An error in mid-stream, and the end of the stream.
std::string ErrorEvents(const absl::Status& status) {
  return absl::StrCat("data: ", MakeErrorReply(Dialect::kOpenAiChat, status).body, "\n\n", kDone);
}

const char* FinishName(FinishReason finish, bool has_calls) {
  if (finish == FinishReason::kLength) return "length";
  return has_calls ? "tool_calls" : "stop";
}

// What both writers keep.
class OpenAiWriter : public AnswerWriter {
 public:
  OpenAiWriter(const ApiCall& call, const ModelFacts& facts, const ReplyIdentity& identity)
      : tokenizer_(*facts.tokenizer),
        stream_(call.stream),
        include_usage_(call.include_usage),
        wants_logprobs_(call.request.wants_logprobs),
        model_(call.model),
        identity_(identity) {}

  bool streams() const final { return stream_; }
  std::string Error(const absl::Status& status) final {
    return stream_ ? ErrorEvents(status) : MakeErrorReply(Dialect::kOpenAiChat, status).body;
  }
  std::string KeepAlive() final { return stream_ ? kComment : ""; }

 protected:
  Json Head(const char* id_prefix, const char* object) const {
    return Json{{"id", absl::StrCat(id_prefix, identity_.unique)},
                {"object", object},
                {"created", identity_.created_sec},
                {"model", model_}};
  }

  const Tokenizer& tokenizer_;
  const bool stream_;
  const bool include_usage_;
  const bool wants_logprobs_;
  const std::string model_;
  const ReplyIdentity identity_;
};

class ChatWriter final : public OpenAiWriter {
 public:
  ChatWriter(const ApiCall& call, const ModelFacts& facts, const ReplyIdentity& identity)
      : OpenAiWriter(call, facts, identity), reader_(call.format) {}

  std::string Begin() override {
    if (!stream_) return "";
    return Chunk(Json{{"role", "assistant"}, {"content", ""}}, nullptr);
  }

  std::string Delta(const CompletionDelta& delta) override {
    Json logprobs = wants_logprobs_ ? ChatLogprobs(delta.report, tokenizer_) : Json::array();
    if (!stream_) {
      for (Json& entry : logprobs) logprobs_.push_back(std::move(entry));
      AppendParts(reader_.Read(delta), parts_);
      return "";
    }
    pending_logprobs_ = std::move(logprobs);
    std::string out = Stream(reader_.Read(delta));
    if (!pending_logprobs_.empty()) out += Chunk(Json::object(), nullptr);
    return out;
  }

  std::string End(const CompletionEnd& end) override {
    std::vector<AnswerPart> parts = reader_.Finish();
    const char* finish = FinishName(end.finish, reader_.call_count() > 0);
    if (!stream_) {
      AppendParts(std::move(parts), parts_);
      return Whole(end, finish);
    }
    std::string out = Stream(parts);
    out += Chunk(Json::object(), finish);
    if (include_usage_) {
      Json last = ChunkHead();
      last["choices"] = Json::array();
      last["usage"] = OpenAiUsage(end, reader_.reasoning_tokens());
      out += Event(last);
    }
    return out + kDone;
  }

 private:
  Json ChunkHead() const { return Head("chatcmpl-", "chat.completion.chunk"); }

  std::string Chunk(Json delta, const char* finish) {
    Json choice{{"index", 0}, {"delta", std::move(delta)}};
    choice["logprobs"] = nullptr;
    if (wants_logprobs_ && !pending_logprobs_.empty()) {
      choice["logprobs"] =
          Json{{"content", std::exchange(pending_logprobs_, Json::array())}, {"refusal", nullptr}};
    }
    choice["finish_reason"] = finish == nullptr ? Json(nullptr) : Json(finish);
    Json chunk = ChunkHead();
    chunk["choices"] = Json::array();
    chunk["choices"].push_back(std::move(choice));
    if (include_usage_) chunk["usage"] = nullptr;
    return Event(chunk);
  }

  std::string CallId(uint32_t index) const {
    return absl::StrCat("call_", identity_.unique, "_", index);
  }

  std::string Stream(const std::vector<AnswerPart>& parts) {
    std::string out;
    for (const AnswerPart& part : parts) {
      if (part.kind == Kind::kCall) {
        out += StreamCall(part);
      } else {
        const char* name = part.kind == Kind::kReasoning ? "reasoning_content" : "content";
        out += Chunk(Json{{name, part.text}}, nullptr);
      }
    }
    return out;
  }

  std::string StreamCall(const AnswerPart& part) {
    const uint32_t index = streamed_calls_++;
    const auto chunk = [&](Json entry) {
      Json delta = Json::object();
      delta["tool_calls"] = Json::array();
      delta["tool_calls"].push_back(std::move(entry));
      return Chunk(std::move(delta), nullptr);
    };
    std::string out = chunk(Json{{"index", index},
                                 {"id", CallId(index)},
                                 {"type", "function"},
                                 {"function", Json{{"name", part.call_name}, {"arguments", ""}}}});
    for (const std::string_view piece : Pieces(part.text, kArgumentPieceBytes)) {
      out += chunk(Json{{"index", index}, {"function", Json{{"arguments", std::string(piece)}}}});
    }
    return out;
  }

  std::string Whole(const CompletionEnd& end, const char* finish) {
    std::string content;
    std::string reasoning;
    Json calls = Json::array();
    for (const AnswerPart& part : parts_) {
      if (part.kind == Kind::kContent) content += part.text;
      if (part.kind == Kind::kReasoning) reasoning += part.text;
      if (part.kind != Kind::kCall) continue;
      const auto index = static_cast<uint32_t>(calls.size());
      calls.push_back(Json{{"id", CallId(index)},
                           {"type", "function"},
                           {"function", Json{{"name", part.call_name}, {"arguments", part.text}}}});
    }
    Json message{{"role", "assistant"}};
    message["content"] = content.empty() && !calls.empty() ? Json(nullptr) : Json(content);
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    message["refusal"] = nullptr;
    Json choice{{"index", 0}, {"message", std::move(message)}};
    choice["logprobs"] = nullptr;
    if (wants_logprobs_) {
      choice["logprobs"] = Json{{"content", std::move(logprobs_)}, {"refusal", nullptr}};
    }
    choice["finish_reason"] = finish;
    Json body = Head("chatcmpl-", "chat.completion");
    body["choices"] = Json::array();
    body["choices"].push_back(std::move(choice));
    body["usage"] = OpenAiUsage(end, reader_.reasoning_tokens());
    return DumpJson(body);
  }

  AnswerReader reader_;
  std::vector<AnswerPart> parts_;          // of a reply that does not stream
  Json logprobs_ = Json::array();          // likewise
  Json pending_logprobs_ = Json::array();  // for the next chunk
  uint32_t streamed_calls_ = 0;
};

class CompletionWriter final : public OpenAiWriter {
 public:
  using OpenAiWriter::OpenAiWriter;

  std::string Begin() override { return ""; }

  std::string Delta(const CompletionDelta& delta) override {
    if (!stream_) {
      text_ += delta.text;
      reports_.insert(reports_.end(), delta.report.begin(), delta.report.end());
      return "";
    }
    if (delta.text.empty() && delta.report.empty()) return "";
    Json body = Body(delta.text, delta.report, nullptr);
    if (include_usage_) body["usage"] = nullptr;
    return Event(body);
  }

  std::string End(const CompletionEnd& end) override {
    const char* finish = FinishName(end.finish, false);
    if (!stream_) {
      Json body = Body(text_, reports_, finish);
      body["usage"] = OpenAiUsage(end, 0);
      return DumpJson(body);
    }
    Json last = Body("", {}, finish);
    if (include_usage_) last["usage"] = nullptr;
    std::string out = Event(last);
    if (include_usage_) {
      Json usage = Head("cmpl-", "text_completion");
      usage["choices"] = Json::array();
      usage["usage"] = OpenAiUsage(end, 0);
      out += Event(usage);
    }
    return out + kDone;
  }

 private:
  Json Body(const std::string& text, std::span<const TokenReport> reports, const char* finish) {
    Json choice{{"index", 0}, {"text", text}};
    choice["logprobs"] =
        wants_logprobs_ ? CompletionLogprobs(reports, tokenizer_, offset_) : Json(nullptr);
    choice["finish_reason"] = finish == nullptr ? Json(nullptr) : Json(finish);
    Json body = Head("cmpl-", "text_completion");
    body["choices"] = Json::array();
    body["choices"].push_back(std::move(choice));
    return body;
  }

  std::string text_;                  // of a reply that does not stream
  std::vector<TokenReport> reports_;  // likewise
  uint64_t offset_ = 0;               // characters of the tokens told so far
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeOpenAiChatWriter(const ApiCall& call, const ModelFacts& facts,
                                                   const ReplyIdentity& identity) {
  return std::make_unique<ChatWriter>(call, facts, identity);
}

std::unique_ptr<AnswerWriter> MakeOpenAiCompletionWriter(const ApiCall& call,
                                                         const ModelFacts& facts,
                                                         const ReplyIdentity& identity) {
  return std::make_unique<CompletionWriter>(call, facts, identity);
}

}  // namespace hearth
