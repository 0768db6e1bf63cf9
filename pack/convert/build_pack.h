// Makes a pack from a checkpoint, a few rows or one expert per worker at a time: memory does not
// grow with the model. What is kept, what is narrowed and what that costs is in the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/convert/checkpoint.h"
#include "pack/convert/expert_choice.h"
#include "pack/convert/expert_repack.h"
#include "pack/convert/expert_writer.h"
#include "pack/format/directory.h"
#include "pack/format/manifest.h"
#include "pack/writer/pack_directory.h"

namespace hearth {

enum class DenseChoice { kBf16, kQ8 };

struct BuildOptions {
  std::string from;
  std::string out;
  // kQ8: the projections that Q8TakesTensor() names; everything else stays as it is in both cases.
  DenseChoice dense = DenseChoice::kQ8;
  // Of the trunk's experts; the MTP layer's keep their format. kSource holds the source exactly.
  // kBf16 rounds an NVFP4 source and keeps FP8 and F32 ones as they are, because BF16 cannot hold
  // them. kXt is encoded without feedback: RequantizePack has the inputs that it needs.
  ExpertTarget experts = {};
  IfExists if_exists = IfExists::kRefuse;
  uint32_t worker_count = 0;  // 0: one per hardware thread, at most 32
  std::string made_by = "hearth";
};

struct BuildReport {
  std::vector<PackFile> files;
  uint64_t pack_bytes = 0;
  ExpertFormat source_format = ExpertFormat::kNvfp4;  // of the trunk's experts
  ExpertFormat expert_format = ExpertFormat::kNvfp4;
  std::string expert_layout;  // "nvfp4", "xt3", "xt4-3-3"
  RepackStats experts;        // all of them, MTP included
  uint64_t dense_values = 0;
  uint64_t dense_q8_values = 0;       // stored as Q8_0
  uint64_t dense_inexact_values = 0;  // that BF16 had to round
};

// Whether --dense q8_0 narrows this tensor: a projection of at least 32 rows whose columns are
// whole blocks, and not one of the small or sensitive ones (embedding, router, gates, injections,
// indexer, convolutions, keys and values of attention and of the n-gram table).
bool Q8TakesTensor(const DenseInfo& info);

absl::StatusOr<BuildReport> BuildPack(const BuildOptions& options, const BuildProgressFn& progress);
// The same from a checkpoint that is open already; `options.from` is not read.
absl::StatusOr<BuildReport> BuildPack(const Checkpoint& checkpoint, const BuildOptions& options,
                                      const BuildProgressFn& progress);

}  // namespace hearth
