// The GPU as the encoder's device: same bytes as without it. What it takes and what it leaves to
// the CPU needs no card; the rest is skipped, with the reason, where there is none.
#include "tools/hearth/xt_gpu_device.h"

#include <vector>

#include "gtest/gtest.h"

#include "pack/quant/xt_encoder.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

TEST(XtGpuDevice, WithoutACardItSaysWhy) {
  const absl::StatusOr<std::unique_ptr<XtGpuDevice>> device = XtGpuDevice::Create();
  if (device.ok()) GTEST_SKIP() << "this machine has " << (*device)->gpu().name;
  EXPECT_TRUE(absl::IsUnimplemented(device.status()) || absl::IsUnavailable(device.status()))
      << device.status();
  EXPECT_FALSE(device.status().message().empty());
}

TEST(XtGpuDevice, EncodesTheBytesOfTheCpuAndLeavesItShortStreams) {
  const absl::StatusOr<std::unique_ptr<XtGpuDevice>> device = XtGpuDevice::Create();
  if (!device.ok()) GTEST_SKIP() << device.status();
  EXPECT_TRUE((*device)->Takes({.rows = 640, .cols = 2560, .bits = 3}));
  EXPECT_FALSE((*device)->Takes({.rows = 64, .cols = 256, .bits = 3}));
  Prng prng(5);
  std::vector<XtShape> shapes;
  for (const uint32_t bits : {2u, 3u, 4u}) {
    shapes.push_back({.rows = 320, .cols = 96, .bits = bits});
    shapes.push_back({.rows = 64, .cols = 64, .bits = bits});  // on the CPU
    shapes.push_back({.rows = 320, .cols = 96, .bits = bits});
  }
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::byte>> expected, found;
  std::vector<XtMatrixJob> cpu_jobs, gpu_jobs;
  for (const XtShape& shape : shapes) {
    std::vector<float>& v = values.emplace_back(size_t{shape.rows} * shape.cols);
    for (float& value : v) {
      value = static_cast<float>(prng.Uniform() + prng.Uniform() + prng.Uniform() - 1.5);
    }
    expected.emplace_back(shape.bytes());
    found.emplace_back(shape.bytes());
  }
  for (size_t m = 0; m < shapes.size(); ++m) {
    cpu_jobs.push_back({.shape = shapes[m], .values = values[m], .matrix = expected[m]});
    gpu_jobs.push_back({.shape = shapes[m], .values = values[m], .matrix = found[m]});
  }
  ASSERT_TRUE(XtEncoder().Encode(cpu_jobs).ok());
  const absl::Status status = XtEncoder(BestXtIsa(), device->get()).Encode(gpu_jobs);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t m = 0; m < shapes.size(); ++m) {
    EXPECT_TRUE(found[m] == expected[m]) << "matrix " << m;
    EXPECT_EQ(gpu_jobs[m].multiplier, cpu_jobs[m].multiplier);
    EXPECT_NEAR(gpu_jobs[m].stats.error.squared_error, cpu_jobs[m].stats.error.squared_error,
                1e-4 * cpu_jobs[m].stats.error.squared_error);
  }
}

}  // namespace
}  // namespace hearth
