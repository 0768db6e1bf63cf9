// Flags of `hearth serve` that exclude each other or have no effect alone.
#include "runtime/config/serve_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace hearth {
namespace {

using testing::HasSubstr;

// What is wrong with these flags besides a pack; empty: nothing.
std::string Refusal(std::initializer_list<std::pair<std::string_view, std::string_view>> flags,
                    std::string_view pack = "model.pack") {
  ServeConfig config;
  config.pack = std::string(pack);
  GivenFields given;
  const std::vector<Field> fields = FieldsOf(config);
  for (const auto& [name, value] : flags) {
    EXPECT_EQ(SetField(fields, name, value), absl::OkStatus()) << name;
    given.Add(name);
  }
  return std::string(config.Validate(given).message());
}

TEST(ServeConfig, TheDefaultsServeThisMachineAlone) {
  EXPECT_EQ(Refusal({}), "");
  const ServeConfig config;
  EXPECT_EQ(config.host, "127.0.0.1");
  EXPECT_FALSE(config.open_network);
}

TEST(ServeConfig, APackIsNeeded) { EXPECT_THAT(Refusal({}, ""), HasSubstr("pack: is required")); }

TEST(ServeConfig, FlagsWithoutEffectAreRefused) {
  EXPECT_THAT(Refusal({{"unix_socket", "/s"}, {"port", "80"}}), HasSubstr("port: has no effect"));
  EXPECT_THAT(Refusal({{"unix_socket", "/s"}, {"host", "::1"}}), HasSubstr("host: has no effect"));
  EXPECT_THAT(Refusal({{"open_network", "true"}, {"api_keys", "k"}}),
              HasSubstr("open_network: has no effect"));
  EXPECT_THAT(Refusal({{"prefix_disk", "1GiB"}}), HasSubstr("prefix_disk: has no effect"));
  EXPECT_THAT(Refusal({{"prefix_dir", "/d"}, {"prefix_ram_bytes", "0B"}}),
              HasSubstr("prefix_dir: has no effect"));
  EXPECT_EQ(Refusal({{"prefix_dir", "/d"}, {"prefix_disk", "1GiB"}}), "");
}

TEST(ServeConfig, CertificateAndKeyGoTogether) {
  EXPECT_THAT(Refusal({{"tls_key", "k"}}), HasSubstr("one needs the other"));
  EXPECT_THAT(Refusal({{"tls_certificate", "c"}}), HasSubstr("one needs the other"));
  EXPECT_EQ(Refusal({{"tls_key", "k"}, {"tls_certificate", "c"}}), "");
}

TEST(ServeConfig, TheFlagsOfCacheAndComputeAreCheckedToo) {
  EXPECT_NE(Refusal({{"mmap_experts", "true"}, {"ram_budget", "1GiB"}}), "");
  EXPECT_NE(Refusal({{"threads", "2"}, {"cpus", "0-1"}}), "");
}

TEST(LogChoice, HasANameForEachLevel) {
  ServeConfig config;
  for (const auto& entry : EnumEntriesOf(LogChoice{})) {
    EXPECT_EQ(SetField(FieldsOf(config), "log", entry.name), absl::OkStatus());
    EXPECT_EQ(config.log, entry.value);
  }
}

}  // namespace
}  // namespace hearth
