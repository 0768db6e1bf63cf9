// The device's name in the forms it takes, and fields that do nothing on the device asked for.
#include "runtime/config/compute_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hearth {
namespace {

using ::testing::HasSubstr;

absl::Status ValidateWith(const std::vector<std::string>& given_names,
                          const ComputeConfig& config = {}) {
  GivenFields given;
  for (const std::string& name : given_names) given.Add(name);
  return config.Validate(given);
}

TEST(ComputeConfig, DeviceIsAutoTheCpuOrACard) {
  EXPECT_EQ(ParseDevice("auto")->kind, DeviceSetting::Kind::kAuto);
  EXPECT_EQ(ParseDevice("cpu")->kind, DeviceSetting::Kind::kCpu);
  EXPECT_EQ(ParseDevice("cuda")->kind, DeviceSetting::Kind::kCuda);
  EXPECT_EQ(ParseDevice("cuda")->index, std::nullopt);
  EXPECT_EQ(ParseDevice("cuda:0")->index, 0u);
  EXPECT_EQ(ParseDevice("cuda:13")->index, 13u);
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "CUDA", "cuda:99999999999"}) {
    const absl::Status status = ParseDevice(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("such as cuda:0")) << text;
  }
}

TEST(ComputeConfig, KvHasNoEffectOnTheCpu) {
  ComputeConfig config;
  config.device = "cpu";
  EXPECT_THAT(std::string(ValidateWith({"device", "kv"}, config).message()),
              HasSubstr("--device auto or cuda"));
  EXPECT_TRUE(ValidateWith({"kv"}).ok());  // by default a card is taken where there is one
}

TEST(ComputeConfig, WorkersAreSaidInOneWay) {
  ComputeConfig config;
  config.cpus = "0-1";
  EXPECT_TRUE(ValidateWith({"cpus"}, config).ok());
  EXPECT_THAT(std::string(ValidateWith({"cpus", "threads"}, config).message()),
              HasSubstr("found both"));
  config.cpus = "0-";
  EXPECT_THAT(std::string(ValidateWith({"cpus"}, config).message()), HasSubstr("cpus"));
}

}  // namespace
}  // namespace hearth
