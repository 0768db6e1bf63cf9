// gpu_kernels/device: what there is, streams, memory and copies. Without CUDA every function says
// so and names the remedy (gpu_kernels/device/without_cuda.cc); without a GPU the list is empty and
// says why.
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/read_probe.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

static_assert(!std::is_default_constructible_v<CudaStreamView>);
static_assert(!std::is_copy_constructible_v<DeviceBuffer>);
static_assert(std::is_nothrow_move_constructible_v<DeviceBuffer>);
static_assert(!std::is_copy_constructible_v<UniqueStream>);

TEST(Device, ListsGpusOrSaysWhyThereAreNone) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (!list.ok()) {
    EXPECT_EQ(list.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(list.status().message().find("build it where nvcc is found"), std::string::npos);
    return;
  }
  EXPECT_EQ(list->gpus.empty(), !list->reason.empty());
  EXPECT_GE(list->runtime_version, 12000u);
  for (const GpuInfo& gpu : list->gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GE(gpu.sm, 75u);
    EXPECT_GT(gpu.memory_bytes, uint64_t{1} << 30);
    EXPECT_GT(gpu.limits.multiprocessor_count, 0u);
    EXPECT_GE(gpu.limits.shared_bytes_per_block_max, 48u << 10);
  }
  EXPECT_EQ(ListGpus()->reason, list->reason);  // an error of CUDA's does not stay behind
}

TEST(Device, NothingCanBeMadeWithoutAGpu) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (list.ok() && !list->gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  const absl::StatusCode code =
      list.ok() ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnimplemented;
  EXPECT_EQ(UniqueStream::Create(GpuId(0)).status().code(), code);
  EXPECT_EQ(UniqueEvent::Create(GpuId(0)).status().code(), code);
  EXPECT_EQ(DeviceBuffer::Create(GpuId(0), 256).status().code(), code);
  EXPECT_EQ(MeasureDeviceReadRate(GpuInfo{.id = GpuId(0)}).status().code(), code);
  EXPECT_EQ(LaunchExpertFfn({}, {}, {}, CudaStreamView(GpuId(0), nullptr)).code(), code);
}

TEST(Device, VersionsHaveNames) {
  EXPECT_EQ(CudaVersionName(13000), "13.0");
  EXPECT_EQ(CudaVersionName(12080), "12.8");
}

TEST(Device, MachineCodeServesItsGenerationAndVirtualCodeAllLater) {
  EXPECT_TRUE(ArchitecturesServe("86-real", 86));
  EXPECT_TRUE(ArchitecturesServe("86-real", 89));
  EXPECT_FALSE(ArchitecturesServe("86-real", 80));
  EXPECT_FALSE(ArchitecturesServe("89-real", 90));
  EXPECT_TRUE(ArchitecturesServe("86-real,89-real,90,120a-real", 90));
  EXPECT_TRUE(ArchitecturesServe("86-real,89-real,90,120a-real", 103));  // from 90's virtual code
  EXPECT_TRUE(ArchitecturesServe("90-virtual", 120));
  EXPECT_FALSE(ArchitecturesServe("90-virtual", 89));
  EXPECT_TRUE(ArchitecturesServe("120a-real", 120));
  EXPECT_FALSE(ArchitecturesServe("120a-real", 121));
  EXPECT_FALSE(ArchitecturesServe("", 90));
}

class DeviceOnGpu : public OnGpu {};

TEST_F(DeviceOnGpu, BytesComeBackFromWhereTheyWent) {
  const absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Create(gpu().id, 1000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u);
  ASSERT_TRUE(FillBytes(*buffer, std::byte{7}, stream().view()).ok());
  const std::vector<std::byte> middle(100, std::byte{9});
  ASSERT_TRUE(CopyToDevice(middle, *buffer, 450, stream().view()).ok());
  std::vector<std::byte> all(1000);
  ASSERT_TRUE(CopyToHost(*buffer, 0, all, stream().view()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], (i >= 450 && i < 550 ? std::byte{9} : std::byte{7})) << i;
  }
}

TEST_F(DeviceOnGpu, RefusesCopiesBeyondTheBuffer) {
  const absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Create(gpu().id, 64);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::vector<std::byte> bytes(64);
  EXPECT_EQ(CopyToDevice(bytes, *buffer, 1, stream().view()).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(CopyToHost(*buffer, UINT64_MAX, bytes, stream().view()).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(DeviceOnGpu, MemoryThatIsNotThereIsAnErrorThatPasses) {
  const absl::Status status = DeviceBuffer::Create(gpu().id, gpu().memory_bytes * 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(DeviceBuffer::Create(gpu().id, 64).ok());
  EXPECT_TRUE(stream().Synchronize().ok());
}

TEST_F(DeviceOnGpu, ReadProbeReadsEveryWordOnce) {
  std::vector<uint32_t> words(4 * 1'000'003 + 2);  // not a multiple of anything, and a tail
  std::iota(words.begin(), words.end(), 12345u);
  const absl::StatusOr<DeviceBuffer> memory = DeviceBuffer::Create(gpu().id, words.size() * 4);
  const absl::StatusOr<DeviceBuffer> sink = DeviceBuffer::Create(gpu().id, 8);
  ASSERT_TRUE(memory.ok() && sink.ok());
  ASSERT_TRUE(CopyToDevice(std::as_bytes(std::span(words)), *memory, 0, stream().view()).ok());
  ASSERT_TRUE(FillBytes(*sink, std::byte{0}, stream().view()).ok());
  ASSERT_TRUE(LaunchReadProbe(*memory, reinterpret_cast<uint64_t*>(sink->data()), gpu().limits,
                              stream().view())
                  .ok());
  uint64_t sum = 0;
  ASSERT_TRUE(
      CopyToHost(*sink, 0, std::as_writable_bytes(std::span(&sum, 1)), stream().view()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  uint32_t expected = 0;  // warps add modulo 2^32 before they meet in 64 bits
  for (size_t i = 0; i + 4 <= words.size(); i += 4) {
    expected += words[i] ^ words[i + 1] ^ words[i + 2] ^ words[i + 3];
  }
  EXPECT_EQ(static_cast<uint32_t>(sum), expected);
}

TEST_F(DeviceOnGpu, ReadRateIsMeasured) {
  const absl::StatusOr<double> rate = MeasureDeviceReadRate(gpu());
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 0);
}

}  // namespace
}  // namespace hearth
