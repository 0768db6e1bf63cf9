// A model ready to run in a test: packs a checkpoint into a temporary directory, opens it and loads
// it.
#pragma once

#include <memory>
#include <string>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "pack/convert/build_pack.h"
#include "pack/convert/checkpoint.h"
#include "runtime/base/clock.h"
#include "runtime/base/worker_team.h"
#include "runtime/engine/model_runner.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {

// A pack in a temporary directory. Failures fail the running test.
class TemporaryPack {
 public:
  TemporaryPack(const Checkpoint& checkpoint, DenseChoice dense);
  TemporaryPack(const std::string& checkpoint_dir, DenseChoice dense);
  const std::string& dir() const { return dir_; }

 private:
  FixtureDir root_;
  std::string dir_;
};

struct RunnerSetup {
  RunnerOptions options;
  uint32_t worker_count = 2;
  const CpuKernels* kernels = nullptr;  // null: the best that this machine has
  ModelRunner::LoadProgress progress = nullptr;
};

class LoadedRunner {
 public:
  LoadedRunner(const std::string& pack_dir, const RunnerSetup& setup);
  ModelRunner& operator*() { return *runner_; }
  ModelRunner* operator->() { return runner_.get(); }

 private:
  WorkerTeam team_;
  SteadyClock clock_;
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace hearth
