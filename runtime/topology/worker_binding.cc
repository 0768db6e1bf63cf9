#include "runtime/topology/worker_binding.h"

#include <pthread.h>

#include <span>

#include "runtime/base/check.h"
#include "runtime/base/cpus.h"

namespace hearth {

WorkerBinding::WorkerBinding(WorkerTeam& team, const WorkerPlan& plan, ThreadBinder& binder)
    : binder_(binder), caller_(pthread_self()), allowed_(AllowedCpus()) {
  HEARTH_CHECK(plan.workers.size() == team.worker_count());
  if (!plan.pinned()) return;
  const auto thread_of = [&](uint32_t w) { return w == 0 ? caller_ : team.thread(w); };
  for (uint32_t w = 0; w < team.worker_count() && status_.ok(); ++w) {
    status_ = binder_.Bind(thread_of(w), std::span(&*plan.workers[w].cpu, 1));
  }
  pinned_ = status_.ok();
  if (pinned_ || allowed_.empty()) return;
  for (uint32_t w = 0; w < team.worker_count(); ++w) {
    // Whoever cannot be let go stays where it is: that costs speed only.
    (void)binder_.Bind(thread_of(w), allowed_);
  }
}

WorkerBinding::~WorkerBinding() {
  if (pinned_ && !allowed_.empty()) (void)binder_.Bind(caller_, allowed_);
}

}  // namespace hearth
