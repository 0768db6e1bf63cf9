// Routes that are published in the launch that chooses them: they are the router's own; and what
// that launch computes beside is what a launch of its own makes.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "runtime/base/prng.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

constexpr uint32_t kHidden = 64;

class PublishChoice : public OnGpu {
 protected:
  // Device memory: logits, routes and weights of LaunchRouter, then of the publication, a NaN flag,
  // rows, and activated rows, their values in int8, scales and sums.
  static constexpr uint64_t kArrayBytes = 1 << 16;
  template <class T>
  T* At(uint32_t array) const {
    return reinterpret_cast<T*>(memory_->data() + array * kArrayBytes);
  }
  template <class T>
  std::vector<T> Read(uint32_t array, size_t count) const {
    std::vector<T> values(count);
    EXPECT_TRUE(CopyToHost(*memory_, array * kArrayBytes, std::as_writable_bytes(std::span(values)),
                           stream().view())
                    .ok());
    EXPECT_TRUE(stream().Synchronize().ok());
    return values;
  }

  void Check(uint32_t expert_count, uint32_t ranks, uint32_t rows, bool renormalise) {
    auto memory = DeviceBuffer::Create(gpu().id, 12 * kArrayBytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_.emplace(*std::move(memory));
    ASSERT_TRUE(FillBytes(*memory_, std::byte{0}, stream().view()).ok());
    Prng prng(expert_count + rows);
    std::vector<float> logits(size_t{rows} * expert_count);
    for (float& v : logits) v = static_cast<float>(prng.Below(200)) * 0.05f;  // with ties
    ASSERT_TRUE(CopyToDevice(std::as_bytes(std::span(logits)), *memory_, 0, stream().view()).ok());
    const auto exchange = WindowExchange::Create(gpu().id,
                                                 {.layer_count = 1,
                                                  .rows_max = rows,
                                                  .ranks = ranks,
                                                  .hidden = kHidden,
                                                  .forms = {.fp32 = true},
                                                  .expert_count = expert_count},
                                                 1'000'000'000, clock_);
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    GpuRouterArgs router{.logits = At<float>(0),
                         .expert = At<uint32_t>(1),
                         .weight = At<float>(2),
                         .nan_flag = At<uint32_t>(5),
                         .rows = rows,
                         .expert_count = expert_count,
                         .ranks = ranks,
                         .renormalise = renormalise};
    ASSERT_TRUE(LaunchRouter(router, stream().view()).ok());
    router.expert = At<uint32_t>(3);
    router.weight = At<float>(4);
    // What runs beside it, in two launches as in one.
    GpuActivateQuantizeArgs activation{.function = RowFunction::kSwiglu,
                                       .x = At<float>(0),
                                       .up = At<float>(0) + 8,
                                       .x_stride = expert_count,
                                       .y = At<float>(7),
                                       .quantized = {.q = At<int8_t>(8),
                                                     .scale = At<float>(9),
                                                     .sum16 = At<int32_t>(9) + kArrayBytes / 8},
                                       .rows = rows,
                                       .cols = expert_count - 8};
    ASSERT_TRUE(LaunchActivateQuantize(activation, stream().view()).ok());
    const std::vector<std::byte> activated = Read<std::byte>(7, 3 * kArrayBytes);
    const std::vector<std::byte> nothing(activated.size());
    ASSERT_TRUE(CopyToDevice(nothing, *memory_, 7 * kArrayBytes, stream().view()).ok());
    ExchangeHost& host = (*exchange)->host();
    host.BeginWindow();
    ASSERT_TRUE(LaunchBeginWindow(**exchange, stream().view()).ok());
    const absl::Status launched = LaunchPublish(**exchange, LayerId(0),
                                                {.router = router,
                                                 .activation = activation,
                                                 .expert = router.expert,
                                                 .weight = router.weight,
                                                 .x = At<float>(6),
                                                 .rows = rows},
                                                stream().view());
    ASSERT_TRUE(launched.ok()) << launched;
    const auto routes = host.AwaitRoutes(LayerId(0), rows, clock_.NowNs() + 1'000'000'000);
    ASSERT_TRUE(routes.ok()) << routes.status();
    const size_t entries = size_t{rows} * ranks;
    const std::vector<uint32_t> expert = Read<uint32_t>(1, entries);
    const std::vector<float> weight = Read<float>(2, entries);
    EXPECT_EQ(Read<uint32_t>(3, entries), expert);
    EXPECT_EQ(Read<float>(4, entries), weight);
    EXPECT_EQ(std::vector<uint32_t>(routes->begin(), routes->end()), expert);
    EXPECT_EQ(Read<std::byte>(7, 3 * kArrayBytes), activated);
    EXPECT_EQ(std::memcmp(host.weights().data(), weight.data(), entries * sizeof(float)), 0);
  }

  SteadyClock clock_;
  std::optional<DeviceBuffer> memory_;
};

TEST_F(PublishChoice, IsTheRouters) {
  for (const uint32_t rows : {1u, 4u, 9u, 16u}) {
    for (const uint32_t expert_count : {40u, 512u, 700u}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << expert_count << " experts");
      Check(expert_count, 10, rows, rows != 4);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace hearth
