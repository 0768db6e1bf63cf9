// Whether what a pack's directories hold is what its manifest says the model is.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pack/format/geometry.h"
#include "pack/reader/pack.h"

namespace hearth {

struct TensorShape {
  std::string name;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

// Every tensor that dense.bin (and mtp.bin) of a model of this geometry holds, as stored.
std::vector<TensorShape> ExpectedDenseTensors(const ModelGeometry& geometry);
std::vector<TensorShape> ExpectedMtpTensors(const ModelGeometry& geometry);

// InvalidArgument with file, expected and found.
absl::Status CheckPackGeometry(const Pack& pack);

}  // namespace hearth
