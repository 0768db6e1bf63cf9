#include "tests/support/runner_fixture.h"

#include <gtest/gtest.h>

#include <utility>

#include "runtime/base/check.h"

namespace hearth {

TemporaryPack::TemporaryPack(const Checkpoint& checkpoint, DenseChoice dense)
    : dir_(root_.File("model.pack")) {
  const absl::StatusOr<BuildReport> report =
      BuildPack(checkpoint, {.out = dir_, .dense = dense}, nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
}

LoadedRunner::LoadedRunner(const std::string& pack_dir, const RunnerSetup& setup)
    : team_(setup.worker_count) {
  absl::StatusOr<Pack> pack = Pack::Open(pack_dir);
  EXPECT_TRUE(pack.ok()) << pack.status();
  HEARTH_CHECK(pack.ok());
  const CpuKernels& kernels =
      setup.kernels != nullptr ? *setup.kernels : SelectCpuKernels(DetectCpuFeatures());
  absl::StatusOr<std::unique_ptr<ModelRunner>> runner =
      ModelRunner::Load(*std::move(pack), setup.options, kernels, team_, clock_, setup.progress);
  EXPECT_TRUE(runner.ok()) << runner.status();
  HEARTH_CHECK(runner.ok());
  runner_ = *std::move(runner);
}

}  // namespace hearth
