// BuildPack from a directory: apart from build_pack.cc so that a build from any other Checkpoint
// needs no reader of files.
#include <memory>

#include "pack/convert/build_pack.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<BuildReport> BuildPack(const BuildOptions& options,
                                      const BuildProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                          Checkpoint::Open(options.from));
  return BuildPack(*checkpoint, options, progress);
}

}  // namespace hearth
