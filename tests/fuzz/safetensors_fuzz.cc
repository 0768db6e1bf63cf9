// Any bytes as a safetensors file: refused with a Status, or every tensor lies in the file, the
// tensors tile its data and no two share a name.
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "pack/reader/safetensors.h"
#include "runtime/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto tensors = hearth::ParseSafetensors(bytes, size, "fuzz");
  if (!tensors.ok()) {
    HEARTH_CHECK(std::string(tensors.status().message()).find('\n') == std::string::npos);
    return 0;
  }
  const auto header_bytes = hearth::SafetensorsHeaderBytes(bytes, size, "fuzz");
  HEARTH_CHECK(header_bytes.ok());
  uint64_t end = *header_bytes;
  std::set<std::string> names;
  for (const hearth::SourceTensor& tensor : *tensors) {
    HEARTH_CHECK(tensor.offset_bytes == end);
    end += tensor.bytes;
    HEARTH_CHECK(end <= size);
    uint64_t expected = hearth::SourceDtypeBytes(tensor.dtype);
    for (const uint64_t dim : tensor.shape()) expected *= dim;
    HEARTH_CHECK(expected == tensor.bytes);
    HEARTH_CHECK(names.insert(tensor.name).second);
  }
  HEARTH_CHECK(end == size);
  return 0;
}
