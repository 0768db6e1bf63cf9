// The progress of work in stages, such as building a pack: one line for each stage.
#pragma once

#include <memory>
#include <string>

#include "pack/convert/build_pack.h"
#include "tools/hearth/progress.h"

namespace hearth::cli {

class StageProgress {
 public:
  explicit StageProgress(const CommandIo& io) : io_(io) {}
  void Update(const BuildProgress& p) {
    if (line_ == nullptr || p.stage != stage_) {
      line_.reset();  // ends the line before the next one begins
      stage_ = p.stage;
      const ProgressUnit unit = p.counts_weights ? ProgressUnit::kWeights : ProgressUnit::kBytes;
      line_ = std::make_unique<Progress>(
          io_, ProgressOptions{.label = p.stage, .unit = unit, .total = p.total_bytes});
    }
    line_->Update(p.done_bytes);
  }

 private:
  const CommandIo& io_;
  std::string stage_;
  std::unique_ptr<Progress> line_;
};

}  // namespace hearth::cli
