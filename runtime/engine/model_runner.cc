#include "runtime/engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/whole_arena.h"
#include "runtime/backend/cpu/cpu_backend.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Refuses what cannot fit before it is read: the kernel would end the process half way.
absl::Status CheckMemory(const Pack& pack, const RunnerOptions& options) {
  const uint64_t experts = pack.experts.file().bytes();
  uint64_t dense = pack.dense.file().bytes() + (pack.mtp ? pack.mtp->file().bytes() : 0);
  if (options.arithmetic == Arithmetic::kReference) dense *= 4;  // Q8 decoded to fp32
  const uint64_t table = pack.ngram && options.ngram_in_memory ? pack.ngram->file().bytes() : 0;
  const uint64_t needed = experts + dense + table;
  if (needed <= options.available_bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      pack.dir, ": needs ", FormatBytes(needed), " of memory (experts ", FormatBytes(experts),
      ", dense weights ", FormatBytes(dense), ", n-gram table ", FormatBytes(table),
      "), available are ", FormatBytes(options.available_bytes_max),
      ": free memory or pack the model in fewer bits"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Load(Pack pack,
                                                               const RunnerOptions& options,
                                                               const CpuKernels& kernels,
                                                               WorkerTeam& team,
                                                               const LoadProgress& progress) {
  std::unique_ptr<ModelRunner> r(new ModelRunner(std::move(pack), options, team));
  HEARTH_RETURN_IF_ERROR(CheckMemory(r->pack_, options));
  const bool reference = options.arithmetic == Arithmetic::kReference;
  HEARTH_ASSIGN_OR_RETURN(
      r->weights_,
      ModelWeights::Load(r->pack_, reference ? Q8Handling::kDecodeToF32 : Q8Handling::kKeep));
  if (r->pack_.ngram && options.ngram_in_memory) {
    HEARTH_RETURN_IF_ERROR(r->pack_.ngram->LoadWhole());
  }
  HEARTH_ASSIGN_OR_RETURN(
      r->store_, WholeArena::Load(r->pack_.experts, team, [&](uint64_t done, uint64_t total) {
        if (progress) progress("loading experts", done, total);
      }));
  HEARTH_ASSIGN_OR_RETURN(
      r->backend_,
      CreateCpuBackend(
          {.weights = r->weights_, .ngram = r->pack_.ngram.get(), .kernels = kernels, .team = team},
          {.arithmetic = options.arithmetic, .limits = options.limits}));
  const MoeGeometry& moe = r->geometry().moe;
  const uint32_t rows_max =
      std::max(options.limits.prompt_rows_max, options.limits.window_rows_max);
  HEARTH_ASSIGN_OR_RETURN(
      r->pool_, ExpertPool::Create({.store = *r->store_, .kernels = kernels, .team = team},
                                   {.rows_max = rows_max, .ranks = moe.experts_per_token}));
  r->plan_.Reserve(rows_max, moe.experts_per_token, moe.expert_count);
  HEARTH_ASSIGN_OR_RETURN(r->expert_output_,
                          AnonymousMapping::Create(uint64_t{rows_max} * moe.experts_per_token *
                                                   r->geometry().hidden * sizeof(float)));
  return r;
}

absl::Status ModelRunner::RunLayer(LayerId layer) {
  HEARTH_ASSIGN_OR_RETURN(const Routes routes, backend_->FirstHalf(layer));
  if (observer_ != nullptr) observer_->OnRoutes(layer, routes);
  GroupRoutes({.expert = routes.expert,
               .rows = routes.rows,
               .ranks = routes.ranks,
               .expert_count = geometry().moe.expert_count},
              plan_);
  const ExpertInput input = backend_->expert_input();
  const std::span<float> output(reinterpret_cast<float*>(expert_output_.data().data()),
                                expert_output_.data().size() / sizeof(float));
  HEARTH_RETURN_IF_ERROR(pool_->Run(
      layer, plan_, {.x = input.x, .quantized = input.quantized, .rows = input.rows}, output));
  if (observer_ != nullptr) {
    observer_->OnExperts(layer, {.plan = plan_,
                                 .x = {input.x, size_t{input.rows} * geometry().hidden},
                                 .hidden = pool_->hidden_rows()});
  }
  HEARTH_RETURN_IF_ERROR(backend_->SecondHalf(layer, output));
  if (observer_ != nullptr) observer_->OnResidual(layer, backend_->residual());
  return absl::OkStatus();
}

absl::Status ModelRunner::RunTrunk(std::span<const Segment> segments, Phase phase) {
  HEARTH_RETURN_IF_ERROR(backend_->BeginTrunk(segments, phase));
  for (uint32_t layer = 0; layer < geometry().layer_count(); ++layer) {
    HEARTH_RETURN_IF_ERROR(RunLayer(LayerId(layer)));
  }
  bytes_.dense += weights_.bytes_per_pass();
  ++bytes_.passes;
  return absl::OkStatus();
}

absl::Status ModelRunner::RunDraft(Sequence& sequence, std::span<const TokenId> tokens,
                                   Backend::DraftSource source) {
  HEARTH_RETURN_IF_ERROR(backend_->BeginDraft(sequence, tokens, source));
  bytes_.dense += weights_.draft_bytes_per_pass();
  return RunLayer(LayerId(geometry().layer_count()));
}

absl::Status ModelRunner::Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) {
  return backend_->Head(row_begin, row_count, logits);
}

PassBytes ModelRunner::bytes_read() const {
  PassBytes bytes = bytes_;
  bytes.experts = pool_->stats().weight_bytes;
  return bytes;
}

}  // namespace hearth
