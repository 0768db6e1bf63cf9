// What run and score share: a pack opened and loaded, its tokenizer and template, tokens from
// flags.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/config/cache_config.h"
#include "runtime/config/compute_config.h"
#include "runtime/engine/model_runner.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "tools/hearth/command.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {

struct ModelSession {
  Workers workers;
  std::unique_ptr<ModelRunner> runner;  // borrows the workers' team: destroyed first
  std::unique_ptr<Tokenizer> tokenizer;
  std::string pack_dir;
  std::string isa;
  MemoryPlan memory_plan;
  double read_rate = 0;  // bytes per second, where asked for
  double load_sec = 0;

  enum class ReadRate : uint8_t { kSkip, kMeasure };
  struct Needs {
    // Measured before anything is loaded: its 128 MiB are then gone before memory is tight.
    ReadRate read_rate = ReadRate::kSkip;
    // Memory is planned for so many sequences of so many tokens; one that grows longer takes more.
    uint32_t sequences = 1;
    uint32_t context_tokens = 8192;
    uint64_t prefix_bytes = 0;  // for states of kept prompts
  };
  // Says on io.talk which CPUs compute, what will be in memory before anything is loaded, and which
  // fallbacks were taken.
  static absl::StatusOr<ModelSession> Open(const std::string& pack_dir,
                                           const ComputeConfig& compute, const CacheConfig& cache,
                                           const CommandIo& io, const Needs& needs);
  static absl::StatusOr<ModelSession> Open(const std::string& pack_dir,
                                           const ComputeConfig& compute, const CacheConfig& cache,
                                           const CommandIo& io) {
    return Open(pack_dir, compute, cache, io, Needs{});
  }
  ~ModelSession();
  ModelSession(ModelSession&&) = default;
  ModelSession& operator=(ModelSession&&) = default;

 private:
  ModelSession() = default;
};

// Where the flags put the experts; reads the profile, which must be of the pack's model.
absl::StatusOr<ExpertOptions> ExpertOptionsOf(const CacheConfig& config, const Manifest& manifest);

// A JSON array of token ids, at most 2^20 of them; refuses anything else with path and position.
absl::StatusOr<std::vector<TokenId>> ReadTokenFile(const std::string& path);

// One user turn through the pack's chat template. What the user typed never becomes a control
// token.
absl::StatusOr<std::vector<TokenId>> EncodeUserTurn(const ModelSession& session,
                                                    std::string_view user_text);

// Bytes per second that all workers read from memory together: the measure under every floor. Takes
// about a tenth of a second and 128 MiB.
absl::StatusOr<double> MeasureReadRate(WorkerTeam& team, Clock& clock);

}  // namespace hearth::cli
