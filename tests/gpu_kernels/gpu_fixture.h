// The GPU that a test runs on; tests of kernels skip, with the reason, where there is none.
#pragma once

#include <optional>

#include "gtest/gtest.h"

#include "gpu_kernels/device/stream.h"

namespace hearth {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<GpuList> list = ListGpus();
    if (!list.ok()) GTEST_SKIP() << list.status();
    if (list->gpus.empty()) GTEST_SKIP() << list->reason;
    gpu_ = list->gpus[0];
    absl::StatusOr<UniqueStream> stream = UniqueStream::Create(gpu_.id);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_.emplace(std::move(*stream));
  }
  const GpuInfo& gpu() const { return gpu_; }
  const UniqueStream& stream() const { return *stream_; }

 private:
  GpuInfo gpu_;
  std::optional<UniqueStream> stream_;
};

}  // namespace hearth
