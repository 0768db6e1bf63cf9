// The part of the runner fixture that needs the whole packing pipeline.
#include <gtest/gtest.h>

#include "tests/support/runner_fixture.h"

namespace hearth {

TemporaryPack::TemporaryPack(const std::string& checkpoint_dir, DenseChoice dense)
    : dir_(root_.File("model.pack")) {
  const absl::StatusOr<BuildReport> report =
      BuildPack({.from = checkpoint_dir, .out = dir_, .dense = dense}, nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
}

}  // namespace hearth
