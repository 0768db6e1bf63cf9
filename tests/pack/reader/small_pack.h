// The smallest complete pack: every kind of file, a few kilobytes each, for tests that try every
// byte.
#pragma once

#include <string>

#include "gtest/gtest.h"

#include "pack/convert/build_pack.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {

inline SyntheticOptions SmallOptions() {
  return {.hidden = 16,
          .width = 16,
          .expert_count = 1,
          .layer_count = 1,
          .vocab_count = 4,
          .has_mtp = true,
          .mtp_experts = ExpertFormat::kFp8,
          .ngram_rows = 5,
          .ngram_row_dim = 16};
}

inline void BuildSmallPack(const std::string& out, SyntheticOptions options = SmallOptions()) {
  const SyntheticCheckpoint source(options);
  const auto report = BuildPack(source, {.from = "", .out = out, .worker_count = 1}, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
}

}  // namespace hearth
