// The cache's values in the forms they accept, and fields that exclude each other or do nothing.
#include "runtime/config/cache_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hearth {
namespace {

using ::testing::HasSubstr;

absl::Status ValidateWith(const std::vector<std::string>& given_names, CacheConfig config = {}) {
  GivenFields given;
  for (const std::string& name : given_names) given.Add(name);
  return config.Validate(given);
}

TEST(CacheConfig, SlotsAreACountOrAShare) {
  EXPECT_EQ(ParseSlots("")->count, 0u);
  EXPECT_EQ(ParseSlots("400")->count, 400u);
  EXPECT_EQ(ParseSlots("400")->share, 0);
  EXPECT_DOUBLE_EQ(ParseSlots("40%")->share, 0.4);
  EXPECT_DOUBLE_EQ(ParseSlots("12.5%")->share, 0.125);
  EXPECT_EQ(ParseSlots("40%")->count, 0u);
  for (const char* text :
       {"-1", "4.5", "101%", "-1%", "%", "nan%", "all", "4 ", "0x10", "99999999999999999999"}) {
    const absl::Status status = ParseSlots(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("such as 400 or 40%")) << text;
  }
}

TEST(CacheConfig, PcieShareIsAutoOrAPartOfOne) {
  EXPECT_LT(*ParsePcieShare("auto"), 0);
  EXPECT_DOUBLE_EQ(*ParsePcieShare("0"), 0);
  EXPECT_DOUBLE_EQ(*ParsePcieShare("0.25"), 0.25);
  EXPECT_DOUBLE_EQ(*ParsePcieShare("1"), 1);
  for (const char* text : {"", "1.01", "-0.1", "half", "nan", "50%"}) {
    EXPECT_EQ(ParsePcieShare(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(CacheConfig, TwoWaysOfSayingTheSameAreRefused) {
  for (const auto& [a, b] : {std::pair("slots", "vram_budget"),
                             {"ram_budget", "mmap_experts"},
                             {"ram_budget", "daemon"},
                             {"mmap_experts", "daemon"}}) {
    const absl::Status status = ValidateWith({a, b});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << a << " " << b;
    EXPECT_THAT(std::string(status.message()), HasSubstr("found both"));
  }
}

TEST(CacheConfig, FieldsWithoutEffectAreRefusedByName) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{"pcie_share"},
                                                {"pcie_share", "ram_budget"},
                                                {"pcie_window_bytes_max"},
                                                {"policy"},
                                                {"policy", "mmap_experts"},
                                                {"profile"},
                                                {"io", "mmap_experts"},
                                                {"io", "daemon"}}) {
    const absl::Status status = ValidateWith(names);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << names[0];
    EXPECT_THAT(std::string(status.message()), HasSubstr(names[0] + ": has no effect"));
  }
}

TEST(CacheConfig, FieldsThatHaveAnEffectAreTaken) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{},
                                                {"slots", "pcie_share", "policy", "profile"},
                                                {"vram_budget", "pcie_window_bytes_max"},
                                                {"ram_budget", "policy", "profile", "io"},
                                                {"daemon", "profile"},
                                                {"mmap_experts", "slots", "profile"},
                                                {"io"}}) {
    EXPECT_EQ(ValidateWith(names), absl::OkStatus());
  }
  CacheConfig bad;
  bad.slots = "many";
  EXPECT_FALSE(ValidateWith({"slots"}, bad).ok());
}

TEST(CacheConfig, EveryFieldIsDocumentedAndReadsItsOwnDefault) {
  CacheConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  EXPECT_EQ(CheckFields(fields), absl::OkStatus());
  for (const Field& field : fields) EXPECT_EQ(field.group, "cache") << field.name;
  EXPECT_EQ(SetField(fields, "ram_budget", "24GiB"), absl::OkStatus());
  EXPECT_EQ(config.ram_budget, uint64_t{24} << 30);
  EXPECT_EQ(FindField(fields, "ram_budget")->print(), "24GiB");
  for (const char* text : {"8", "8GB", "8e9", "-1", "abc", ""}) {
    EXPECT_FALSE(SetField(fields, "ram_budget", text).ok()) << text;
  }
}

}  // namespace
}  // namespace hearth
