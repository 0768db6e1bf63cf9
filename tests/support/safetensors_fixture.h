// Small safetensors files for tests: a plain writer, and one that takes the header as text so that
// a test can damage it. Independent of pack/reader, so that reader and fixture cannot share a
// mistake.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

struct FixtureTensor {
  std::string name;
  std::string dtype;  // as in the file: "BF16", "F32", "F8_E4M3", "U8", "U32", "I64"
  std::vector<uint64_t> shape;
  std::vector<uint8_t> data;  // little-endian, row-major

  bool operator==(const FixtureTensor&) const = default;
};

FixtureTensor Bf16Fixture(std::string name, std::vector<uint64_t> shape,
                          std::span<const uint16_t> codes);
FixtureTensor F32Fixture(std::string name, std::vector<uint64_t> shape,
                         std::span<const float> values);
FixtureTensor BytesFixture(std::string name, std::string dtype, std::vector<uint64_t> shape,
                           std::span<const uint8_t> bytes);
FixtureTensor I64Fixture(std::string name, std::span<const uint64_t> values);
FixtureTensor U32Fixture(std::string name, std::span<const uint32_t> values);

// The header of a well-formed file whose tensors lie in the given order.
std::string SafetensorsHeaderText(std::span<const FixtureTensor> tensors);
// 8-byte length, header, data: any text and any data.
std::string SafetensorsBytes(std::string_view header_text, std::string_view data);
// A well-formed file.
std::string SafetensorsBytes(std::span<const FixtureTensor> tensors);

// Writes or replaces a file; a failure fails the running test.
void WriteFixtureFile(const std::string& path, std::string_view bytes);
std::string ReadFixtureFile(const std::string& path);

// A fresh directory under the system's temporary one, removed with its contents.
class FixtureDir {
 public:
  FixtureDir();
  ~FixtureDir();
  FixtureDir(const FixtureDir&) = delete;
  FixtureDir& operator=(const FixtureDir&) = delete;
  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const;

 private:
  std::string path_;
};

}  // namespace hearth
