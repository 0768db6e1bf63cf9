// The server's paths: each call is parsed, given to the service and answered in its dialect.
//
//   POST /v1/chat/completions  /v1/completions  /v1/messages  /v1/messages/count_tokens
//   POST /tokenize  /detokenize  /v1/trace
//   GET  /v1/models  /v1/models/NAME  /health  /metrics  /v1/telemetry
//   refused by name: /v1/embeddings, /v1/responses and others of OpenAI's that this server is not
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/serve/api/model_facts.h"
#include "runtime/serve/api/service_bodies.h"
#include "runtime/serve/completion.h"
#include "runtime/serve/http/http_routes.h"
#include "runtime/serve/server_log.h"
#include "runtime/serve/task_pool.h"
#include "runtime/serve/telemetry/telemetry_snapshot.h"
#include "runtime/serve/telemetry/trace_requests.h"
#include "runtime/serve/telemetry_feed.h"

namespace hearth {

struct ApiServices {  // all outlive the routes
  const ModelFacts& facts;
  CompletionService& service;
  TaskPool& tasks;
  TelemetryFeed& feed;
  TraceRequests& traces;
  ServerLog& log;
  // From any thread.
  std::function<Health()> health;
  std::function<TelemetrySnapshot()> telemetry;
  std::function<uint64_t()> random;
  std::function<int64_t()> unix_seconds;
};

// Who speaks on a path, for errors that the transport makes.
Dialect DialectOfPath(std::string_view path);

void AddApiRoutes(const ApiServices& services, HttpRoutes& routes);

}  // namespace hearth
