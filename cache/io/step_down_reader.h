// Reads with io_uring until the kernel refuses it in mid-run (a seccomp filter put in place after
// the start), then with pread threads: no read is lost, and one line says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "cache/io/reader.h"
#include "cache/io/uring_reader.h"

namespace hearth {

class StepDownReader final : public Reader {
 public:
  // Makes the reader that takes over; its traits become this one's. Called at most once.
  using MakeSuccessor = std::function<std::unique_ptr<Reader>(const absl::Status& refusal)>;

  StepDownReader(std::unique_ptr<UringReader> uring, MakeSuccessor make_successor)
      : uring_(std::move(uring)), make_successor_(std::move(make_successor)) {}

  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override;
  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override;
  void Wake() override;
  uint32_t in_flight() const override;
  const ReaderTraits& traits() const override;

 private:
  absl::Status StepDown();

  std::unique_ptr<UringReader> uring_;
  MakeSuccessor make_successor_;
  std::mutex mutex_;  // Wake() against the change of readers
  std::unique_ptr<Reader> successor_;
};

}  // namespace hearth
