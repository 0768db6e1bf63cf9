#include "tests/support/golden_file.h"

#include <gtest/gtest.h>

namespace hearth {

GoldenFile::GoldenFile(const std::string& path) : file_(SafetensorsFile::Open(path)) {
  EXPECT_TRUE(file_.ok()) << file_.status();
}

const SourceTensor* GoldenFile::Find(const std::string& name, uint64_t value_bytes) const {
  if (!file_.ok()) return nullptr;
  for (const SourceTensor& tensor : file_->tensors()) {
    if (tensor.name != name) continue;
    if (value_bytes != 0) {
      EXPECT_EQ(SourceDtypeBytes(tensor.dtype), value_bytes) << name;
    }
    return &tensor;
  }
  ADD_FAILURE() << "no golden tensor '" << name << "'";
  return nullptr;
}

std::vector<uint64_t> GoldenFile::Shape(const std::string& name) const {
  const SourceTensor* tensor = Find(name, 0);
  if (tensor == nullptr) return {};
  return {tensor->shape().begin(), tensor->shape().end()};
}

void GoldenFile::ReadInto(const SourceTensor& tensor, std::span<std::byte> into) const {
  const absl::Status status = file_->Read(tensor, 0, into);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace hearth
