// gpu_kernels/device: pinned and registered host memory, what is free, the check of what was
// allocated, and events and streams that are asked whether they have ended.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_memory.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/link_copy.h"
#include "runtime/base/file.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Access = RegisteredMemory::Access;

static_assert(!std::is_copy_constructible_v<PinnedBuffer>);
static_assert(std::is_nothrow_move_constructible_v<PinnedBuffer>);
static_assert(!std::is_copy_constructible_v<RegisteredMemory>);

TEST(DeviceMemory, NothingCanBeHadWithoutAGpu) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (list.ok() && !list->gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  const absl::StatusCode code =
      list.ok() ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnimplemented;
  EXPECT_EQ(PinnedBuffer::Create(GpuId(0), 4096).status().code(), code);
  auto memory = AnonymousMapping::Create(4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(RegisteredMemory::Create(GpuId(0), memory->data(), Access::kReadWrite).status().code(),
            code);
  EXPECT_EQ(ReadGpuMemory(GpuId(0)).status().code(), code);
}

class DeviceMemoryOnGpu : public OnGpu {};

TEST_F(DeviceMemoryOnGpu, PinnedMemoryIsZeroedAndCopiedBothWays) {
  auto pinned = PinnedBuffer::Create(gpu().id, 1 << 20);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_NE(pinned->device_data(), nullptr);
  for (const std::byte b : pinned->data()) ASSERT_EQ(b, std::byte{0});
  for (size_t i = 0; i < pinned->bytes(); ++i) {
    pinned->data()[i] = static_cast<std::byte>(i * 31 % 253);
  }
  auto device = DeviceBuffer::Create(gpu().id, pinned->bytes());
  auto back = PinnedBuffer::Create(gpu().id, pinned->bytes());
  ASSERT_TRUE(device.ok() && back.ok());
  ASSERT_TRUE(CopyToDevice(pinned->data(), *device, 0, stream().view()).ok());
  ASSERT_TRUE(CopyToHost(*device, 0, back->data(), stream().view()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_EQ(std::memcmp(pinned->data().data(), back->data().data(), back->bytes()), 0);
}

// Memory that was mapped elsewhere: pinned, copied from across the border of two registrations (or
// refused there, which is what callers rely on being told), unpinned, and pinned again.
TEST_F(DeviceMemoryOnGpu, RegisteredMemoryIsReadInPlaceWhileItLives) {
  auto memory = AnonymousMapping::Create(8 << 20);
  ASSERT_TRUE(memory.ok());
  const std::span<std::byte> bytes = memory->data().first(8 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  auto device = DeviceBuffer::Create(gpu().id, bytes.size());
  ASSERT_TRUE(device.ok());
  for (int turn = 0; turn < 2; ++turn) {
    auto first = RegisteredMemory::Create(gpu().id, bytes.first(4 << 20), Access::kReadWrite);
    ASSERT_TRUE(first.ok()) << first.status();
    auto second = RegisteredMemory::Create(gpu().id, bytes.subspan(4 << 20), Access::kReadWrite);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_NE(first->device_data(), nullptr);
    const auto again = RegisteredMemory::Create(gpu().id, bytes.first(4096), Access::kReadWrite);
    EXPECT_FALSE(again.ok());
    EXPECT_THAT(std::string(again.status().message()), HasSubstr("ulimit -l"));
    const size_t half = 4 << 20;
    ASSERT_TRUE(CopyToDevice(bytes.first(half), *device, 0, stream().view()).ok());
    ASSERT_TRUE(CopyToDevice(bytes.subspan(half), *device, half, stream().view()).ok());
    ASSERT_TRUE(stream().Synchronize().ok());
    const absl::Status across =
        CopyToDevice(bytes.subspan(half - 4096, 8192), *device, half - 4096, stream().view());
    RecordProperty("copy_across_registrations", across.ok() ? "works" : "refused");
    std::printf("copy across two registrations: %s\n", across.ToString().c_str());
    ASSERT_TRUE(stream().Synchronize().ok());
  }
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(CopyToHost(*device, 0, back, stream().view()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_EQ(std::memcmp(back.data(), bytes.data(), back.size()), 0);
}

TEST_F(DeviceMemoryOnGpu, ReadOnlyMemoryCanBeRegisteredOrIsRefusedWithAReason) {
  auto memory = AnonymousMapping::Create(1 << 20);
  ASSERT_TRUE(memory.ok());
  std::fill(memory->data().begin(), memory->data().end(), std::byte{7});
  ASSERT_EQ(mprotect(memory->data().data(), 1 << 20, PROT_READ), 0);
  const auto registered =
      RegisteredMemory::Create(gpu().id, memory->data().first(1 << 20), Access::kReadOnly);
  std::printf("read-only registration: %s\n", registered.status().ToString().c_str());
  if (!registered.ok()) {
    EXPECT_THAT(std::string(registered.status().message()), HasSubstr("pinning"));
  }
  ASSERT_EQ(mprotect(memory->data().data(), 1 << 20, PROT_READ | PROT_WRITE), 0);
}

TEST_F(DeviceMemoryOnGpu, RangesThatAreNoWholePagesAreRefused) {
  auto memory = AnonymousMapping::Create(1 << 16);
  ASSERT_TRUE(memory.ok());
  const std::span<std::byte> bytes = memory->data();
  for (const std::span<std::byte> range : {bytes.first(0), bytes.first(100), bytes.subspan(64)}) {
    EXPECT_EQ(RegisteredMemory::Create(gpu().id, range, Access::kReadWrite).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(DeviceMemoryOnGpu, WhatIsAllocatedIsNotFreeAndIsThere) {
  const auto before = ReadGpuMemory(gpu().id);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_GT(before->free_bytes, 0u);
  EXPECT_LE(before->free_bytes, before->total_bytes);
  const uint64_t bytes = 512 << 20;
  auto buffer = DeviceBuffer::Create(gpu().id, bytes + 4096);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const auto after = ReadGpuMemory(gpu().id);
  ASSERT_TRUE(after.ok());
  EXPECT_LE(after->free_bytes + bytes, before->free_bytes);
  EXPECT_TRUE(CheckDeviceMemory(*buffer, stream().view()).ok());
  auto small = DeviceBuffer::Create(gpu().id, 100);
  ASSERT_TRUE(small.ok());
  EXPECT_TRUE(CheckDeviceMemory(*small, stream().view()).ok());
}

TEST_F(DeviceMemoryOnGpu, UploadsAreMeasuredInPieces) {
  auto pinned = PinnedBuffer::Create(gpu().id, 32 << 20);
  ASSERT_TRUE(pinned.ok());
  const auto rate = MeasureUploadRate(gpu().id, pinned->data(), 2'764'816);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 1e9);
  EXPECT_EQ(MeasureUploadRate(gpu().id, pinned->data(), 20 << 20).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LinkRates, TheCopyEngineUnlessAKernelIsClearlyFaster) {
  EXPECT_EQ(ChooseUploadWay({.copy_engine = 52e9, .kernel = 48e9}), UploadWay::kCopyEngine);
  EXPECT_EQ(ChooseUploadWay({.copy_engine = 50e9, .kernel = 51e9}), UploadWay::kCopyEngine);
  EXPECT_EQ(ChooseUploadWay({.copy_engine = 20e9, .kernel = 24e9}), UploadWay::kKernel);
  EXPECT_EQ(ChooseUploadWay({}), UploadWay::kCopyEngine);
}

TEST_F(DeviceMemoryOnGpu, EventsAndStreamsTellWhetherTheyHaveEnded) {
  auto event = UniqueEvent::Create(gpu().id, EventKind::kUntimed);
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(*event->HasPassed());  // never recorded
  auto other = UniqueStream::Create(gpu().id, StreamPriority::kHigh);
  ASSERT_TRUE(other.ok());
  auto buffer = DeviceBuffer::Create(gpu().id, uint64_t{1} << 30);
  ASSERT_TRUE(buffer.ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(FillBytes(*buffer, std::byte{1}, stream().view()).ok());
  }
  ASSERT_TRUE(event->Record(stream().view()).ok());
  ASSERT_TRUE(event->HoldBack(other->view()).ok());
  auto last = UniqueEvent::Create(gpu().id, EventKind::kUntimed);
  ASSERT_TRUE(last.ok());
  ASSERT_TRUE(last->Record(other->view()).ok());
  EXPECT_FALSE(*event->HasPassed());
  EXPECT_FALSE(*last->HasPassed());
  EXPECT_FALSE(*other->HasEnded());
  ASSERT_TRUE(other->Synchronize().ok());
  EXPECT_TRUE(*event->HasPassed());
  EXPECT_TRUE(*last->HasPassed());
  EXPECT_TRUE(*other->HasEnded());
}

}  // namespace
}  // namespace hearth
