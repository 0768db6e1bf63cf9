// A few threads for work that must not hold up the network or the engine: bodies parsed, prompts
// rendered and tokenised, traces waited for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hearth {

// Any number of threads may add tasks.
class TaskPool {
 public:
  TaskPool(uint32_t thread_count, uint32_t waiting_max);
  // Finishes the tasks at work; those that wait are dropped, and with them what they hold.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // False when as many wait as may, or after Stop(): the task is not taken.
  bool Add(std::function<void()> task);
  // Takes no more; those that wait are dropped, those at work finished. Later calls do nothing.
  void Stop();

 private:
  void Main();

  const uint32_t waiting_max_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hearth
