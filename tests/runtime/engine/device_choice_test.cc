// Which device a machine gets: every reason against a card is an error where a card was asked for,
// and the reason for the CPU where it was not.
#include "runtime/engine/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/units.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr DeviceSetting kAuto{.kind = DeviceSetting::Kind::kAuto};
constexpr DeviceSetting kCpu{.kind = DeviceSetting::Kind::kCpu};
constexpr DeviceSetting kCuda{.kind = DeviceSetting::Kind::kCuda};

GpuInfo Card(uint32_t index, uint64_t memory_bytes, uint32_t sm = 89) {
  GpuInfo info;
  info.id = GpuId(index);
  info.name = "Card";
  info.sm = sm;
  info.memory_bytes = memory_bytes;
  return info;
}

GpuList TwoCards() {
  GpuList list;
  list.gpus = {Card(0, 12_GiB), Card(1, 24_GiB)};
  return list;
}

// The card is refused with this code when asked for, and the CPU taken for that reason otherwise.
void ExpectCpuBecause(const absl::StatusOr<GpuList>& gpus, const DeviceNeeds& needs,
                      absl::StatusCode code, const std::string& why) {
  const absl::Status refused = ChooseDevice(kCuda, gpus, needs).status();
  EXPECT_EQ(refused.code(), code);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  const absl::StatusOr<DeviceChoice> choice = ChooseDevice(kAuto, gpus, needs);
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->gpu.has_value());
  EXPECT_THAT(choice->reason, HasSubstr("the CPU: "));
  EXPECT_THAT(choice->reason, HasSubstr(why));
}

TEST(DeviceChoice, TheCardWithMostMemoryUnlessOneIsNamed) {
  EXPECT_EQ(ChooseDevice(kAuto, TwoCards(), {})->gpu->id, GpuId(1));
  EXPECT_EQ(ChooseDevice(kCuda, TwoCards(), {})->gpu->id, GpuId(1));
  const DeviceSetting first{.kind = DeviceSetting::Kind::kCuda, .index = 0};
  EXPECT_EQ(ChooseDevice(first, TwoCards(), {})->gpu->id, GpuId(0));
  EXPECT_THAT(ChooseDevice(kAuto, TwoCards(), {})->reason, HasSubstr("24.0 GiB"));
}

TEST(DeviceChoice, NoCardWithoutKernelsOfThisBuild) {
  GpuList list = TwoCards();
  list.architectures = "89-real";
  for (GpuInfo& gpu : list.gpus) {
    gpu.sm = 120;
    gpu.has_kernels = false;
  }
  ExpectCpuBecause(list, {}, absl::StatusCode::kFailedPrecondition,
                   "Card is sm_120: this build has kernels for 89-real only; ");
  ExpectCpuBecause(list, {}, absl::StatusCode::kFailedPrecondition,
                   "-DCMAKE_CUDA_ARCHITECTURES=120");
}

TEST(DeviceChoice, TheCpuWhenAskedForWhateverThereIs) {
  EXPECT_FALSE(ChooseDevice(kCpu, TwoCards(), {})->gpu.has_value());
}

TEST(DeviceChoice, WhatKeepsACardFromBeingUsed) {
  GpuList none;
  none.reason = "no NVIDIA driver is installed";
  ExpectCpuBecause(none, {}, absl::StatusCode::kUnavailable, "no NVIDIA driver is installed");
  ExpectCpuBecause(absl::UnimplementedError("this build has no CUDA"), {},
                   absl::StatusCode::kUnimplemented, "this build has no CUDA");
  GpuList old;
  old.gpus = {Card(0, 12_GiB, 75)};
  ExpectCpuBecause(old, {}, absl::StatusCode::kFailedPrecondition, "compute capability 7.5");
  ExpectCpuBecause(TwoCards(), {.card_bytes = 25_GiB}, absl::StatusCode::kResourceExhausted,
                   "takes 25.0 GiB");
  ExpectCpuBecause(TwoCards(), {.arithmetic = Arithmetic::kReference},
                   absl::StatusCode::kFailedPrecondition, "reference arithmetic");
}

TEST(DeviceChoice, ACardThatIsNotThereIsNamed) {
  const DeviceSetting third{.kind = DeviceSetting::Kind::kCuda, .index = 2};
  const absl::Status status = ChooseDevice(third, TwoCards(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no GPU 2"));
}

}  // namespace
}  // namespace hearth
