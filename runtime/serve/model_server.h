// A server of one model, put together: HTTP in front, the API's dialects, the scheduler and the
// model runner behind, telemetry beside.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/prefix_cache.h"
#include "runtime/engine/prefix_store.h"
#include "runtime/model/chat/chat_template.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/answer_constraints.h"
#include "runtime/serve/api/control_text_guard.h"
#include "runtime/serve/api/model_facts.h"
#include "runtime/serve/api/service_bodies.h"
#include "runtime/serve/http/http_options.h"
#include "runtime/serve/http/http_routes.h"
#include "runtime/serve/http/http_server.h"
#include "runtime/serve/scheduler.h"
#include "runtime/serve/server_log.h"
#include "runtime/serve/task_pool.h"
#include "runtime/serve/telemetry/telemetry_board.h"
#include "runtime/serve/telemetry/telemetry_sampler.h"
#include "runtime/serve/telemetry/trace_requests.h"
#include "runtime/serve/telemetry_feed.h"

namespace hearth {

struct ModelServerOptions {
  HttpServerOptions http;
  SchedulerOptions scheduler;
  PrefixCacheOptions prefixes;
  std::optional<PrefixStoreOptions> prefix_store;  // none: RAM only
  TelemetryFacts telemetry;
  ModelFacts facts;                  // names, sizes and defaults; what it points at is filled in
  std::optional<ChatTemplate> chat;  // none: a model without one
};

struct ModelServerDeps {  // all outlive the server
  ModelRunner& runner;
  const Tokenizer& tokenizer;
  Clock& clock;
  ServerLog& log;
  std::function<uint64_t()> random;       // of any thread
  std::function<int64_t()> unix_seconds;  // of any thread
  std::function<ProcessUse()> process = nullptr;
};

class ModelServer {
 public:
  // Binds and listens; nothing is answered before Serve(). Threads that it starts inherit the
  // CPUs of the calling thread, which need not be the one that serves. Errors are those of
  // HttpServer, Scheduler, PrefixStore and AnswerConstraints; a vocabulary that grammars cannot
  // use is told to the log, and constrained answers are refused.
  static absl::StatusOr<std::unique_ptr<ModelServer>> Create(const ModelServerDeps& deps,
                                                             ModelServerOptions options);
  ~ModelServer();

  uint16_t port() const { return http_->port(); }
  // Answers until Shutdown() has ended it. The thread that calls it runs the model.
  void Serve();
  // Takes no more requests, gives those at hand `grace_ns`, cancels what is left and ends Serve().
  // From another thread than Serve()'s; blocks until all is told.
  void Shutdown(int64_t grace_ns);
  void ReplaceKeys(std::shared_ptr<const ApiKeys> keys) { http_->ReplaceKeys(std::move(keys)); }

  TelemetrySnapshot Telemetry() const { return sampler_->Snapshot(); }
  ServeCounters counters() const { return scheduler_->counters(); }

 private:
  explicit ModelServer(const ModelServerDeps& deps);
  absl::Status MakeFacts(ModelServerOptions& options);
  absl::Status MakeEngineSide(const ModelServerOptions& options);
  void MakeTelemetry(const ModelServerOptions& options);
  absl::Status MakeHttp(ModelServerOptions& options);
  Health HealthNow() const;
  HttpCounters HttpNow() const;

  const ModelServerDeps deps_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> stopping_{false};
  std::optional<ChatTemplate> chat_;
  std::unique_ptr<ControlTextGuard> guard_;
  std::unique_ptr<AnswerConstraints> constraints_;
  ModelFacts facts_;
  std::unique_ptr<PrefixStore> prefix_store_;
  std::unique_ptr<PrefixCache> prefixes_;
  TelemetryBoard board_;
  TraceRequests traces_;
  std::unique_ptr<EngineTelemetry> engine_telemetry_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<TelemetrySampler> sampler_;
  std::unique_ptr<TelemetryFeed> feed_;
  std::unique_ptr<HttpRoutes> routes_;
  std::unique_ptr<TaskPool> tasks_;  // its tasks use what stands above
  std::unique_ptr<HttpServer> http_;
};

}  // namespace hearth
