#include "runtime/serve/model_server.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api_routes.h"
#include "runtime/serve/telemetry/telemetry_json.h"

namespace hearth {
namespace {

// One parses while the other waits for a trace.
constexpr uint32_t kTaskThreads = 2;
constexpr uint32_t kTasksWaitingMax = 256;

PrefixCounters PrefixCountersOf(const PrefixCache& cache, const PrefixStore* store) {
  const PrefixCacheStats s = cache.stats();
  PrefixCounters counters{.lookups = s.lookups,
                          .hits = s.hits,
                          .reused_tokens = s.tokens_reused,
                          .stored = s.kept,
                          .evicted = s.evictions,
                          .entries = s.images,
                          .bytes = s.bytes,
                          .budget_bytes = s.budget_bytes,
                          .disk_hits = s.disk_hits};
  if (store == nullptr) return counters;
  const PrefixStoreStats disk = store->stats();
  counters.disk_entries = disk.images;
  counters.disk_bytes = disk.bytes;
  counters.disk_budget_bytes = disk.budget_bytes;
  counters.disk_errors = disk.damaged;
  return counters;
}

}  // namespace

ModelServer::ModelServer(const ModelServerDeps& deps) : deps_(deps) {}

absl::StatusOr<std::unique_ptr<ModelServer>> ModelServer::Create(const ModelServerDeps& deps,
                                                                 ModelServerOptions options) {
  std::unique_ptr<ModelServer> server(new ModelServer(deps));
  HEARTH_RETURN_IF_ERROR(server->MakeEngineSide(options));
  HEARTH_RETURN_IF_ERROR(server->MakeFacts(options));
  server->MakeTelemetry(options);
  HEARTH_RETURN_IF_ERROR(server->MakeHttp(options));
  return server;
}

ModelServer::~ModelServer() { Shutdown(0); }

absl::Status ModelServer::MakeEngineSide(const ModelServerOptions& options) {
  if (options.prefix_store) {
    PrefixStoreOptions store = *options.prefix_store;
    store.log = [this](std::string_view text) { deps_.log.Error(text); };
    HEARTH_ASSIGN_OR_RETURN(prefix_store_, PrefixStore::Open(std::move(store)));
  }
  if (options.prefixes.ram_budget_bytes != 0) {
    prefixes_ =
        std::make_unique<PrefixCache>(deps_.runner.imager(), options.prefixes, prefix_store_.get());
  }
  EngineTelemetry::Deps telemetry{.runner = deps_.runner, .board = board_, .traces = &traces_};
  if (prefixes_) {
    telemetry.prefix = [this] { return PrefixCountersOf(*prefixes_, prefix_store_.get()); };
  }
  engine_telemetry_ = std::make_unique<EngineTelemetry>(std::move(telemetry));
  HEARTH_ASSIGN_OR_RETURN(scheduler_, Scheduler::Create({.runner = deps_.runner,
                                                         .tokenizer = deps_.tokenizer,
                                                         .clock = deps_.clock,
                                                         .prefixes = prefixes_.get(),
                                                         .observer = engine_telemetry_.get()},
                                                        options.scheduler));
  return absl::OkStatus();
}

absl::Status ModelServer::MakeFacts(ModelServerOptions& options) {
  const ModelGeometry& geometry = deps_.runner.geometry();
  chat_ = std::move(options.chat);
  guard_ = std::make_unique<ControlTextGuard>(deps_.tokenizer);
  facts_ = std::move(options.facts);
  facts_.context_tokens = scheduler_->context_tokens_max();
  facts_.tokenizer = &deps_.tokenizer;
  facts_.guard = guard_.get();
  facts_.timeout_max_ns = options.scheduler.timeout_ns;
  if (chat_) {
    facts_.chat = &*chat_;
    facts_.abilities = ProbeChatTemplate(*chat_, facts_.chat_base);
  }
  absl::StatusOr<std::unique_ptr<AnswerConstraints>> constraints =
      AnswerConstraints::Create(deps_.tokenizer, geometry.stop_tokens, geometry.vocab_count);
  if (constraints.ok()) {
    constraints_ = *std::move(constraints);
    facts_.constraints = constraints_.get();
  } else {
    deps_.log.Error(
        absl::StrCat("constrained answers are refused: ", constraints.status().message()));
  }
  return absl::OkStatus();
}

void ModelServer::MakeTelemetry(const ModelServerOptions& options) {
  sampler_ = std::make_unique<TelemetrySampler>(
      TelemetrySampler::Deps{.board = board_,
                             .clock = deps_.clock,
                             .serve = [this] { return scheduler_->counters(); },
                             .http = [this] { return HttpNow(); },
                             .process = deps_.process},
      options.telemetry);
  feed_ = std::make_unique<TelemetryFeed>([this] { return TelemetryJson(sampler_->Snapshot()); });
}

absl::Status ModelServer::MakeHttp(ModelServerOptions& options) {
  tasks_ = std::make_unique<TaskPool>(kTaskThreads, kTasksWaitingMax);
  const auto error_body = [](const HttpError& error) -> HttpErrorBody {
    return {.content_type = "application/json",
            .body = TransportErrorBody(DialectOfPath(error.path), error.status, error.code,
                                       error.message)};
  };
  routes_ = std::make_unique<HttpRoutes>(error_body);
  AddApiRoutes({.facts = facts_,
                .service = *scheduler_,
                .tasks = *tasks_,
                .feed = *feed_,
                .traces = traces_,
                .log = deps_.log,
                .health = [this] { return HealthNow(); },
                .telemetry = [this] { return sampler_->Snapshot(); },
                .random = deps_.random,
                .unix_seconds = deps_.unix_seconds},
               *routes_);
  options.http.error_body = error_body;
  options.http.unix_seconds = deps_.unix_seconds;
  HEARTH_ASSIGN_OR_RETURN(http_, HttpServer::Create(std::move(options.http), *routes_));
  return absl::OkStatus();
}

Health ModelServer::HealthNow() const {
  const ServeCounters counters = scheduler_->counters();
  return {.ready = serving_.load(),
          .stopping = stopping_.load(),
          .requests_running = counters.reading + counters.decoding,
          .requests_waiting = counters.queued};
}

HttpCounters ModelServer::HttpNow() const {
  if (http_ == nullptr) return {};
  const HttpServerStats s = http_->stats();
  return {.connections_open = s.connections_open,
          .connections = s.connections_accepted,
          .connections_refused = s.connections_refused,
          .responses = s.responses,
          .streams_open = s.streams_open};
}

void ModelServer::Serve() {
  serving_.store(true);
  http_->Start();
  sampler_->Start();
  scheduler_->Serve();
  serving_.store(false);
}

void ModelServer::Shutdown(int64_t grace_ns) {
  stopping_.store(true);
  if (scheduler_) scheduler_->Drain();
  traces_.Stop();
  if (feed_) feed_->Stop();  // a dashboard is no reason to wait
  if (http_) http_->Shutdown(grace_ns);
  if (scheduler_) scheduler_->Stop();
  if (tasks_) tasks_->Stop();
}

}  // namespace hearth
