#include "runtime/serve/task_pool.h"

#include <utility>

namespace hearth {

TaskPool::TaskPool(uint32_t thread_count, uint32_t waiting_max) : waiting_max_(waiting_max) {
  threads_.reserve(thread_count);
  for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { Main(); });
}

TaskPool::~TaskPool() { Stop(); }

bool TaskPool::Add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void TaskPool::Stop() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock: they may hold anything
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(waiting_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void TaskPool::Main() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

}  // namespace hearth
