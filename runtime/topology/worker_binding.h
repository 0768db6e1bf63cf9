// Keeps a team's workers on the CPUs of a plan for as long as this object lives.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/worker_team.h"
#include "runtime/topology/machine.h"
#include "runtime/topology/worker_plan.h"

namespace hearth {

// Made by the thread that owns the team, which is worker 0: threads that it starts later inherit
// its CPU. When one worker cannot be pinned, all run wherever the system puts them, and status()
// says why: results do not depend on it.
class WorkerBinding {
 public:
  // `team` has as many workers as `plan`. `binder` outlives this object.
  WorkerBinding(WorkerTeam& team, const WorkerPlan& plan, ThreadBinder& binder);
  ~WorkerBinding();  // lets the calling thread go; the other workers keep their CPUs
  WorkerBinding(const WorkerBinding&) = delete;
  WorkerBinding& operator=(const WorkerBinding&) = delete;

  bool pinned() const { return pinned_; }
  const absl::Status& status() const { return status_; }

 private:
  ThreadBinder& binder_;
  std::thread::native_handle_type caller_;
  std::vector<uint32_t> allowed_;  // to the caller before
  bool pinned_ = false;
  absl::Status status_;
};

}  // namespace hearth
