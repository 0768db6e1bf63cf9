// Typed access to a safetensors file of golden values.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "pack/reader/safetensors.h"

namespace hearth {

class GoldenFile {
 public:
  explicit GoldenFile(
      const std::string& path);  // a file that cannot be opened fails the running test

  // The values of `name` as T, which must be the stored type's width. Missing: fails the running
  // test.
  template <class T>
  std::vector<T> Get(const std::string& name) const {
    const SourceTensor* tensor = Find(name, sizeof(T));
    if (tensor == nullptr) return {};
    std::vector<T> values(tensor->bytes / sizeof(T));
    ReadInto(*tensor, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<uint64_t> Shape(const std::string& name) const;

 private:
  const SourceTensor* Find(const std::string& name, uint64_t value_bytes) const;
  void ReadInto(const SourceTensor& tensor, std::span<std::byte> into) const;
  absl::StatusOr<SafetensorsFile> file_;
};

}  // namespace hearth
