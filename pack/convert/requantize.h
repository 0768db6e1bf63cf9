// A pack with its routed experts in another format; everything else is copied byte for byte.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "pack/convert/build_pack.h"
#include "pack/convert/expert_choice.h"
#include "pack/convert/expert_writer.h"
#include "pack/reader/pack.h"
#include "pack/writer/pack_directory.h"

namespace hearth {

struct RequantizeOptions {
  std::string out;
  ExpertTarget experts;  // of the trunk's; the MTP layer's keep their format
  // Error feedback of each expert, in order (pack/convert/expert_writer.h); empty: none.
  std::function<absl::StatusOr<XtExpertFeedback>(ExpertKey)> feedback;
  std::string feedback_note;  // what the manifest says of it: "without feedback"
  IfExists if_exists = IfExists::kRefuse;
  uint32_t worker_count = 0;  // 0: one per hardware thread, at most 32
  std::string made_by = "hearth";
  XtMatrixDevice* device = nullptr;  // encodes what it takes, if any; outlives the call
};

// InvalidArgument when the pack's experts cannot get the format: XT is not encoded again.
absl::StatusOr<BuildReport> RequantizePack(const Pack& pack, const RequantizeOptions& options,
                                           const BuildProgressFn& progress);
// The same check, before any work.
absl::Status CheckRequantize(const Pack& pack, const ExpertTarget& experts);

}  // namespace hearth
