#include "tools/hearth/serve_options.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/engine/prefix_binding.h"
#include "runtime/serve/api/api_call.h"

namespace hearth::cli {
namespace {

constexpr int64_t kNsPerSec = 1'000'000'000;
constexpr uint64_t kTextFileBytesMax = 1_MiB;
constexpr uint64_t kPrefixDiskBytes = 16_GiB;

absl::StatusOr<HttpServerOptions> HttpOptionsOf(const ServeConfig& config, const CommandIo& io) {
  HttpServerOptions http;
  http.listen = {.address = config.host, .port = static_cast<uint16_t>(config.port)};
  http.listen.unix_path = config.unix_socket;
  if (io.inherited_socket) http.listen = {.address = "", .fd = *io.inherited_socket};
  http.tls = {.certificate_path = config.tls_certificate, .key_path = config.tls_key};
  http.limits.connections_max = config.connections;
  // Everything on this machine is one peer, a proxy too.
  http.limits.connections_per_peer_max = std::max(
      std::min(http.limits.connections_per_peer_max, config.connections), config.connections / 2);
  http.limits.body_bytes_max = config.body_bytes_max;
  http.limits.bodies_bytes_max = std::max(http.limits.bodies_bytes_max, config.body_bytes_max);
  http.allow_network_without_keys = config.open_network;
  http.host_names = config.allow_host;
  http.origins = config.allow_origin;
  if (!config.api_keys.empty()) {
    HEARTH_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Load(config.api_keys));
    http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  }
  return http;
}

absl::StatusOr<PrefixBinding> BindingOf(const ModelSession& session) {
  HEARTH_ASSIGN_OR_RETURN(const std::string program, HashProgram());
  const ModelRunner& runner = *session.runner;
  return HashPrefixBinding(
      PrefixBindingText(runner.pack().manifest, runner.options(), session.isa, program));
}

absl::StatusOr<SchedulerOptions> SchedulerOptionsOf(const ServeConfig& config,
                                                    const ModelSession& session,
                                                    const ModelSession::Needs& needs,
                                                    const CommandIo& io) {
  const ModelRunner& runner = *session.runner;
  const ModelGeometry& geometry = runner.geometry();
  SchedulerOptions options{.sequences_max = config.sequences, .queue_max = config.queue};
  options.context_tokens_max = std::min(config.context_tokens, geometry.context_tokens_max);
  options.drafts_max = geometry.has_mtp ? config.spec : 0;
  if (config.spec > 0 && !geometry.has_mtp) {
    io.talk << "hearth: this model has no MTP head: decoding without drafts\n";
  }
  options.timeout_ns = int64_t{config.timeout_sec} * kNsPerSec;
  HEARTH_ASSIGN_OR_RETURN(
      const uint64_t sequence_bytes,
      runner.SequenceBytes(std::min(needs.context_tokens, geometry.context_tokens_max)));
  options.state_budget_bytes = sequence_bytes * needs.sequences;
  return options;
}

std::string ModelNameOf(const ServeConfig& config) {
  if (!config.model_name.empty()) return config.model_name;
  std::filesystem::path dir = std::filesystem::path(config.pack).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();
  std::string name = dir.filename().string();
  if (name.ends_with(".pack")) name.resize(name.size() - 5);
  return name.empty() || name == "." ? "hearth" : name;
}

absl::StatusOr<ModelFacts> FactsOf(const ServeConfig& config, const ModelSession& session,
                                   int64_t now_unix_sec) {
  ModelFacts facts{.id = ModelNameOf(config), .any_name = config.model_name.empty()};
  facts.created_sec = now_unix_sec;
  const std::string path = JoinPath(session.pack_dir, "generation_config.json");
  if (!FileExists(path)) return facts;
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTextFileBytesMax));
  HEARTH_ASSIGN_OR_RETURN(facts.defaults, ParseGenerationConfig(text, path));
  return facts;
}

absl::StatusOr<std::optional<ChatTemplate>> TemplateOf(const ServeConfig& config,
                                                       const ModelSession& session) {
  const std::string path = config.chat_template.empty()
                               ? JoinPath(session.pack_dir, "chat_template.jinja")
                               : config.chat_template;
  if (config.chat_template.empty() && !FileExists(path)) return std::optional<ChatTemplate>();
  HEARTH_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::Load(path));
  return std::optional<ChatTemplate>(std::move(chat));
}

TelemetryFacts TelemetryFactsOf(const ServeConfig& config, const ModelSession& session,
                                const SchedulerOptions& scheduler, const std::string& model,
                                int64_t now_unix_sec) {
  const ModelRunner& runner = *session.runner;
  const RunnerOptions& options = runner.options();
  TelemetryFacts facts{.version = HEARTH_VERSION, .started_unix_ms = now_unix_sec * 1000};
  facts.model = model;
  facts.pack = config.pack;
  facts.device = options.gpu ? options.gpu->name : "cpu";
  facts.expert_count = runner.pack().experts.layer_count() * runner.pack().experts.expert_count();
  facts.context_tokens_max = scheduler.context_tokens_max;
  facts.requests_max = scheduler.sequences_max;
  facts.queue_max = scheduler.queue_max;
  facts.notes = runner.experts().Notes();
  facts.memory = session.memory_plan.items;
  facts.ram_limit_bytes = options.memory.available_bytes;
  facts.ram_limit_source = options.memory.source;
  if (options.gpu) facts.card_bytes = options.gpu->memory_bytes;
  facts.max_bytes_per_sec[static_cast<size_t>(Channel::kDram)] = session.read_rate;
  facts.link_window_budget_bytes = config.cache.pcie_window_bytes_max;
  return facts;
}

}  // namespace

absl::Status CheckServing(const ServeConfig& config, const CommandIo& io) {
  if (!config.chat_template.empty()) {
    HEARTH_RETURN_IF_ERROR(ChatTemplate::Load(config.chat_template).status());
  }
  HEARTH_ASSIGN_OR_RETURN(HttpServerOptions http, HttpOptionsOf(config, io));
  if (io.inherited_socket) return ValidateHttpServerOptions(http);
  HttpRoutes nothing;
  const absl::Status status = HttpServer::Create(std::move(http), nothing).status();
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(), " (--api-keys, --host, --open-network, --tls-certificate)"));
}

absl::StatusOr<ModelServerOptions> ServeOptionsOf(const ServeConfig& config,
                                                  const ModelSession& session,
                                                  const ModelSession::Needs& needs,
                                                  const CommandIo& io, int64_t now_unix_sec) {
  ModelServerOptions options;
  HEARTH_ASSIGN_OR_RETURN(options.http, HttpOptionsOf(config, io));
  HEARTH_ASSIGN_OR_RETURN(options.scheduler, SchedulerOptionsOf(config, session, needs, io));
  options.prefixes.ram_budget_bytes = config.prefix_ram_bytes;
  if (!config.prefix_dir.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const PrefixBinding binding, BindingOf(session));
    options.prefix_store =
        PrefixStoreOptions{.dir = config.prefix_dir,
                           .budget_bytes = config.prefix_disk.value_or(kPrefixDiskBytes),
                           .binding = binding};
  }
  HEARTH_ASSIGN_OR_RETURN(options.facts, FactsOf(config, session, now_unix_sec));
  HEARTH_ASSIGN_OR_RETURN(options.chat, TemplateOf(config, session));
  options.telemetry =
      TelemetryFactsOf(config, session, options.scheduler, options.facts.id, now_unix_sec);
  return options;
}

}  // namespace hearth::cli
