#include "runtime/serve/api_routes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/serve/answer_stream.h"
#include "runtime/serve/api/answer_writer.h"
#include "runtime/serve/api/api_call.h"
#include "runtime/serve/telemetry/metrics_text.h"
#include "runtime/serve/telemetry/telemetry_json.h"

namespace hearth {
namespace {

using Client = std::shared_ptr<ResponseWriter>;

constexpr std::string_view kJson = "application/json";
constexpr double kMsPerNs = 1e-6;

absl::Status Busy() {
  return absl::ResourceExhaustedError("the server has too many requests at hand: ask again later");
}

void SendJson(ResponseWriter& client, std::string body) { client.Send({.body = std::move(body)}); }

void SendResult(ResponseWriter& client, Dialect dialect, absl::StatusOr<std::string> body) {
  if (body.ok()) {
    SendJson(client, *std::move(body));
  } else {
    client.Send(ErrorReplyOf(dialect, body.status()));
  }
}

std::string LogLine(std::string_view path, const std::string& key_id,
                    const AnswerOutcome& outcome) {
  std::string line =
      absl::StrCat(ToAbsl(path), key_id.empty() ? "" : " key=", key_id, " ", outcome.http_status);
  if (!outcome.status.ok()) {
    absl::StrAppend(&line, " failed: ", absl::StatusCodeToString(outcome.status.code()));
    return line;
  }
  const CompletionEnd& end = outcome.end;
  absl::StrAppendFormat(&line, " %s: prompt %d tokens (%d reused), output %d, first token %.1f ms",
                        FinishReasonName(end.finish), end.prompt_tokens, end.reused_tokens,
                        end.output_tokens, static_cast<double>(end.first_token_ns) * kMsPerNs);
  absl::StrAppendFormat(&line, ", all %.1f ms", static_cast<double>(end.total_ns) * kMsPerNs);
  return line;
}

// A call's way: parsed here, computed by the service, written by an AnswerStream.
void Answer(const ApiServices& s, Dialect dialect, const HttpRequest& request,
            const Client& client) {
  absl::StatusOr<ApiCall> call = ParseApiCall(dialect, request.body, s.facts, {.seed = s.random()});
  if (!call.ok()) {
    client->Send(ErrorReplyOf(dialect, call.status()));
    return;
  }
  const ReplyIdentity identity{.unique = absl::StrFormat("%016x%016x", s.random(), s.random()),
                               .created_sec = s.unix_seconds()};
  auto told = [&log = s.log, path = request.path, key = request.key_id](const AnswerOutcome& o) {
    if (log.Logs(LogLevel::kInfo)) log.Info(LogLine(path, key, o));
  };
  const auto stream = std::make_shared<AnswerStream>(
      dialect, MakeAnswerWriter(*call, s.facts, identity), client, std::move(told));
  const absl::StatusOr<CompletionId> id = s.service.Submit(std::move(call->request), stream);
  if (!id.ok()) {
    client->Send(ErrorReplyOf(dialect, id.status()));
    return;
  }
  client->OnGone([&service = s.service, id = *id] { service.Cancel(id); });
  stream->Begin();
}

// A route whose work is done by the pool; `work` is as Answer.
template <class Work>
void AddPosted(const ApiServices& s, HttpRoutes& routes, std::string path, Dialect dialect,
               Work work) {
  routes.Add({.method = "POST",
              .path = std::move(path),
              .content_type = std::string(kJson),
              .needs_body = true,
              .body_bytes_max = kRequestBodyBytesMax,
              .handle = [s, dialect, work](HttpRequest request, Client client) {
                auto task = [s, work, request = std::move(request), client] {
                  work(s, request, client);
                };
                if (!s.tasks.Add(std::move(task))) client->Send(ErrorReplyOf(dialect, Busy()));
              }});
}

void AddCalls(const ApiServices& s, HttpRoutes& routes) {
  const auto answered = [&](const char* path, Dialect dialect) {
    AddPosted(s, routes, path, dialect,
              [dialect](const ApiServices& services, const HttpRequest& request,
                        const Client& client) { Answer(services, dialect, request, client); });
  };
  answered("/v1/chat/completions", Dialect::kOpenAiChat);
  answered("/v1/completions", Dialect::kOpenAiCompletion);
  answered("/v1/messages", Dialect::kAnthropic);
  using Body = absl::StatusOr<std::string> (*)(std::string_view, const ModelFacts&);
  const auto computed = [&](const char* path, Dialect dialect, Body body) {
    AddPosted(s, routes, path, dialect,
              [dialect, body](const ApiServices& services, const HttpRequest& request,
                              const Client& client) {
                SendResult(*client, dialect, body(request.body, services.facts));
              });
  };
  computed("/v1/messages/count_tokens", Dialect::kAnthropic, CountTokensBody);
  computed("/tokenize", Dialect::kOpenAiChat, TokenizeBody);
  computed("/detokenize", Dialect::kOpenAiChat, DetokenizeBody);
}

void AddModels(const ApiServices& s, HttpRoutes& routes) {
  const auto dialect_of = [](const HttpRequest& request) {
    return request.Header("anthropic-version") ? Dialect::kAnthropic : Dialect::kOpenAiChat;
  };
  routes.Add({.method = "GET",
              .path = "/v1/models",
              .handle = [s, dialect_of](HttpRequest request, Client client) {
                SendJson(*client, ModelsBody(dialect_of(request), s.facts));
              }});
  constexpr std::string_view kPrefix = "/v1/models/";
  routes.Add({.method = "GET",
              .path = absl::StrCat(ToAbsl(kPrefix), "*"),
              .handle = [s, dialect_of, kPrefix](HttpRequest request, Client client) {
                const Dialect dialect = dialect_of(request);
                const std::string_view name = std::string_view(request.path).substr(kPrefix.size());
                SendResult(*client, dialect, ModelBody(dialect, s.facts, name));
              }});
}

// ?windows=N and ?wait_sec=N.
absl::StatusOr<TraceOrder> TraceOrderOf(const HttpRequest& request) {
  TraceOrder order;
  if (const auto windows = request.QueryValue("windows");
      windows && !absl::SimpleAtoi(*windows, &order.windows)) {
    return FieldError("windows",
                      absl::StrCat("expected a whole number from 1 to ", kTraceWindowsMax));
  }
  if (const auto wait = request.QueryValue("wait_sec")) {
    uint32_t seconds = 0;
    if (!absl::SimpleAtoi(*wait, &seconds)) {
      return FieldError("wait_sec", "expected a whole number of seconds");
    }
    order.wait_ns = int64_t{seconds} * 1'000'000'000;
  }
  return order;
}

void AddTelemetry(const ApiServices& s, HttpRoutes& routes) {
  routes.Add({.method = "GET", .path = "/health", .handle = [s](HttpRequest, Client client) {
                const Health health = s.health();
                const bool ok = health.ready && !health.stopping;
                client->Send({.status = ok ? 200 : 503, .body = HealthBody(health)});
              }});
  routes.Add({.method = "GET", .path = "/metrics", .handle = [s](HttpRequest, Client client) {
                client->Send({.content_type = std::string(kMetricsContentType),
                              .body = MetricsText(s.telemetry())});
              }});
  routes.Add(
      {.method = "GET", .path = "/v1/telemetry", .handle = [s](HttpRequest request, Client client) {
         const auto accept = request.Header("accept");
         if (accept && accept->find(kJson) != std::string_view::npos) {
           SendJson(*client, TelemetryJson(s.telemetry()));
         } else if (!s.feed.Watch(client)) {
           client->Send(ErrorReplyOf(Dialect::kOpenAiChat, Busy()));
         }
       }});
  routes.Add(
      {.method = "POST", .path = "/v1/trace", .handle = [s](HttpRequest request, Client client) {
         auto task = [s, request = std::move(request), client] {
           const absl::StatusOr<TraceOrder> order = TraceOrderOf(request);
           SendResult(
               *client, Dialect::kOpenAiChat,
               order.ok() ? s.traces.Take(*order) : absl::StatusOr<std::string>(order.status()));
         };
         if (!s.tasks.Add(std::move(task))) {
           client->Send(ErrorReplyOf(Dialect::kOpenAiChat, Busy()));
         }
       }});
}

void AddRefusals(HttpRoutes& routes) {
  for (const char* path :
       {"/v1/embeddings", "/v1/responses", "/v1/moderations", "/v1/rerank", "/v1/images/*",
        "/v1/audio/*", "/v1/files", "/v1/batches", "/v1/fine_tuning/*", "/v1/assistants"}) {
    routes.Add({.method = "POST", .path = path, .handle = [path](HttpRequest, Client client) {
                  client->Send(ErrorReplyOf(Dialect::kOpenAiChat, NotServed(path)));
                }});
  }
}

}  // namespace

Dialect DialectOfPath(std::string_view path) {
  if (path.starts_with("/v1/messages")) return Dialect::kAnthropic;
  return path == "/v1/completions" ? Dialect::kOpenAiCompletion : Dialect::kOpenAiChat;
}

void AddApiRoutes(const ApiServices& services, HttpRoutes& routes) {
  AddCalls(services, routes);
  AddModels(services, routes);
  AddTelemetry(services, routes);
  AddRefusals(routes);
}

}  // namespace hearth
