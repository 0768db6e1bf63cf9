#include "tests/support/safetensors_fixture.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace hearth {
namespace {

template <class T>
std::vector<uint8_t> BytesOf(std::span<const T> values) {
  std::vector<uint8_t> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

FixtureTensor Bf16Fixture(std::string name, std::vector<uint64_t> shape,
                          std::span<const uint16_t> codes) {
  return {std::move(name), "BF16", std::move(shape), BytesOf(codes)};
}

FixtureTensor F32Fixture(std::string name, std::vector<uint64_t> shape,
                         std::span<const float> values) {
  return {std::move(name), "F32", std::move(shape), BytesOf(values)};
}

FixtureTensor BytesFixture(std::string name, std::string dtype, std::vector<uint64_t> shape,
                           std::span<const uint8_t> bytes) {
  return {std::move(name), std::move(dtype), std::move(shape), BytesOf(bytes)};
}

FixtureTensor I64Fixture(std::string name, std::span<const uint64_t> values) {
  return {std::move(name), "I64", {values.size()}, BytesOf(values)};
}

FixtureTensor U32Fixture(std::string name, std::span<const uint32_t> values) {
  return {std::move(name), "U32", {values.size()}, BytesOf(values)};
}

std::string SafetensorsHeaderText(std::span<const FixtureTensor> tensors) {
  std::ostringstream out;
  out << "{\"__metadata__\":{\"format\":\"pt\"}";
  uint64_t offset = 0;
  for (const FixtureTensor& t : tensors) {
    out << ",\"" << t.name << "\":{\"dtype\":\"" << t.dtype << "\",\"shape\":[";
    for (size_t i = 0; i < t.shape.size(); ++i) out << (i == 0 ? "" : ",") << t.shape[i];
    out << "],\"data_offsets\":[" << offset << "," << offset + t.data.size() << "]}";
    offset += t.data.size();
  }
  out << "}";
  return out.str();
}

std::string SafetensorsBytes(std::string_view header_text, std::string_view data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>((uint64_t{header_text.size()} >> (8 * i)) & 0xFF);
  }
  bytes.append(header_text);
  bytes.append(data);
  return bytes;
}

std::string SafetensorsBytes(std::span<const FixtureTensor> tensors) {
  std::string header = SafetensorsHeaderText(tensors);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string data;
  for (const FixtureTensor& t : tensors) data.append(t.data.begin(), t.data.end());
  return SafetensorsBytes(header, data);
}

void WriteFixtureFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) ADD_FAILURE() << "cannot write " << path;
}

std::string ReadFixtureFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) ADD_FAILURE() << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

FixtureDir::FixtureDir() {
  std::string path = (std::filesystem::temp_directory_path() / "hearth-test-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "cannot make " << path;
  path_ = path;
}

FixtureDir::~FixtureDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string FixtureDir::File(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

}  // namespace hearth
