// Graphs run what was recorded, as often as they are launched, and nothing while it is recorded;
// overlapping launches (gpu_kernels/device/launch.cuh) keep their order.
#include "gpu_kernels/device/graph.h"

#include <optional>
#include <utility>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "runtime/base/status.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/launch_chain.h"

namespace hearth {
namespace {

static_assert(!std::is_copy_constructible_v<UniqueGraph>);
static_assert(std::is_nothrow_move_constructible_v<UniqueGraph>);

TEST(Graph, NeedsAGpu) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (list.ok() && !list->gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  bool recorded = false;
  const absl::Status status =
      UniqueGraph::Capture(CudaStreamView(GpuId(0), nullptr), [&](CudaStreamView) {
        recorded = true;
        return absl::OkStatus();
      }).status();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(recorded);
}

class GraphOnGpu : public OnGpu {
 protected:
  static constexpr uint32_t kCount = 64 * kChainThreads;

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (std::optional<DeviceBuffer>* buffer : {&even_, &odd_}) {
      absl::StatusOr<DeviceBuffer> made = DeviceBuffer::Create(gpu().id, kCount * 4);
      ASSERT_TRUE(made.ok()) << made.status();
      buffer->emplace(std::move(*made));
    }
  }

  // `links` links, from even_ to odd_ and back.
  absl::StatusOr<UniqueGraph> Chain(uint32_t links, bool overlaps) {
    return UniqueGraph::Capture(stream().view(), [&](CudaStreamView on) -> absl::Status {
      for (uint32_t i = 0; i < links; ++i) {
        const DeviceBuffer& from = i % 2 == 0 ? *even_ : *odd_;
        const DeviceBuffer& to = i % 2 == 0 ? *odd_ : *even_;
        HEARTH_RETURN_IF_ERROR(LaunchChainLink(reinterpret_cast<const uint32_t*>(from.data()),
                                               reinterpret_cast<uint32_t*>(to.data()), kCount,
                                               overlaps, on));
      }
      return absl::OkStatus();
    });
  }

  static std::vector<uint32_t> Expected(uint32_t links) {
    std::vector<uint32_t> words(kCount, 0x01010101u);
    for (uint32_t link = 0; link < links; ++link) {
      uint32_t sum = 0;
      for (uint32_t i = 0; i < kChainTerms; ++i) sum += words[i * (kCount / kChainTerms)];
      std::vector<uint32_t> next(kCount);
      for (uint32_t i = 0; i < kCount; ++i) next[i] = 3 * words[kCount - 1 - i] + sum;
      words = std::move(next);
    }
    return words;
  }

  std::vector<uint32_t> Read() {
    std::vector<uint32_t> words(kCount);
    EXPECT_TRUE(
        CopyToHost(*even_, 0, std::as_writable_bytes(std::span(words)), stream().view()).ok());
    EXPECT_TRUE(stream().Synchronize().ok());
    return words;
  }

  std::optional<DeviceBuffer> even_;
  std::optional<DeviceBuffer> odd_;
};

TEST_F(GraphOnGpu, RunsWhatWasRecordedAtEachLaunch) {
  constexpr uint32_t kLinks = 200;
  for (const bool overlaps : {false, true}) {
    ASSERT_TRUE(FillBytes(*even_, std::byte{1}, stream().view()).ok());
    absl::StatusOr<UniqueGraph> graph = Chain(kLinks, overlaps);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->node_count(), kLinks);
    EXPECT_EQ(Read(), Expected(0));  // nothing ran yet
    for (uint32_t launch = 1; launch <= 5; ++launch) {
      ASSERT_TRUE(graph->Launch(stream().view()).ok());
      ASSERT_EQ(Read(), Expected(launch * kLinks)) << launch << (overlaps ? " overlapping" : "");
    }
  }
}

TEST_F(GraphOnGpu, AnErrorWhileRecordingIsReturnedAndTheStreamGoesOn) {
  const absl::Status error = UniqueGraph::Capture(stream().view(), [&](CudaStreamView on) {
                               EXPECT_TRUE(FillBytes(*even_, std::byte{7}, on).ok());
                               return absl::OutOfRangeError("no");
                             }).status();
  EXPECT_EQ(error, absl::OutOfRangeError("no"));
  EXPECT_FALSE(UniqueGraph::Capture(stream().view(), [&](CudaStreamView) {
                 return stream().Synchronize();
               }).ok());
  ASSERT_TRUE(FillBytes(*even_, std::byte{1}, stream().view()).ok());
  absl::StatusOr<UniqueGraph> graph = Chain(2, true);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(graph->Launch(stream().view()).ok());
  EXPECT_EQ(Read(), Expected(2));
}

}  // namespace
}  // namespace hearth
