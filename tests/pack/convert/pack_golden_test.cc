// Goal: nibble order, block positions and scale conventions of every source format, against values
// that an independent script (tests/golden/make_pack_golden.py) computed from the format documents.
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pack/convert/matrix_source.h"
#include "pack/convert/tensor_catalog.h"
#include "pack/reader/safetensors.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> DecodeCase(const nlohmann::json& json) {
  std::vector<FixtureTensor> tensors;
  for (const auto& [suffix, t] : json["tensors"].items()) {
    tensors.push_back({"model.layers.0.x." + suffix, t["dtype"], t["shape"], FromHex(t["hex"])});
  }
  const FixtureDir dir;
  WriteFixtureFile(dir.File("model.safetensors"), SafetensorsBytes(tensors));
  absl::StatusOr<SafetensorsSet> set = SafetensorsSet::Open(dir.path());
  EXPECT_EQ(set.status(), absl::OkStatus());
  if (!set.ok()) return {};
  absl::StatusOr<TensorCatalog> catalog = TensorCatalog::Create(*set, dir.path(), true);
  const uint64_t rows = json["rows"], cols = json["cols"];
  const absl::StatusOr<MatrixSource> source =
      FindMatrix(*catalog, QuantConfig(), {.module = "layers.0.x", .shape = {rows, cols}});
  EXPECT_EQ(source.status(), absl::OkStatus());
  if (!source.ok()) return {};
  EXPECT_EQ(catalog->CheckAllTaken(), absl::OkStatus());
  std::vector<float> values(rows * cols);
  EXPECT_EQ(ReadMatrixRows(*source, 0, rows, values), absl::OkStatus());
  return values;
}

TEST(PackGolden, EverySourceFormatDecodesToTheScriptsValues) {
  const std::string path = std::string(HEARTH_SOURCE_DIR) + "/tests/golden/pack_source.json";
  const nlohmann::json golden = nlohmann::json::parse(ReadFixtureFile(path), nullptr, false);
  ASSERT_TRUE(golden.is_object());
  std::map<std::string, int> compared;
  for (const nlohmann::json& json : golden["cases"]) {
    const std::string name = json["name"];
    SCOPED_TRACE(name);
    const std::vector<float> values = DecodeCase(json);
    const uint64_t rows = json["rows"], cols = json["cols"];
    ASSERT_EQ(values.size(), rows * cols);
    if (json.contains("expected")) {
      for (uint64_t i = 0; i < values.size(); ++i) {
        const double expected = json["expected"][i / cols][i % cols];
        ASSERT_EQ(values[i], static_cast<float>(expected))
            << "row " << i / cols << " column " << i % cols;
        ++compared[name];
      }
      continue;
    }
    for (const nlohmann::json& sample : json["samples"]) {
      const uint64_t row = sample[0], col = sample[1];
      const double expected = sample[2];
      ASSERT_EQ(values[row * cols + col], static_cast<float>(expected))
          << "row " << row << " column " << col;
      ++compared[name];
    }
  }
  EXPECT_EQ(compared.size(), 10u);
  EXPECT_EQ(compared["fp8 all codes"], 254);
  EXPECT_EQ(compared["nvfp4 distinct modelopt"], 16);
  EXPECT_EQ(compared["fp8 blocks BF16"], 48);
}

}  // namespace
}  // namespace hearth
