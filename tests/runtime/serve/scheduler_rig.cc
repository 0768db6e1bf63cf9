#include "tests/runtime/serve/scheduler_rig.h"

namespace hearth {

std::unique_ptr<Flashlet> SchedulerTest::model_;
std::unique_ptr<LoadedRunner> SchedulerTest::runner_;

void SchedulerTest::SetUpTestSuite() {
  model_ = std::make_unique<Flashlet>(HEARTH_SOURCE_DIR);
  runner_ = std::make_unique<LoadedRunner>(
      model_->pack_dir(), RunnerSetup{.options = {.limits = {.prompt_rows_max = 64}}});
}

void SchedulerTest::TearDownTestSuite() {
  runner_.reset();
  model_.reset();
}

}  // namespace hearth
