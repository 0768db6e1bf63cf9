// Every dense tensor that a model of some geometry has, under its pack name and with the shape that
// checkpoints give it.
#pragma once

#include <vector>

#include "pack/convert/matrix_source.h"
#include "pack/format/geometry.h"

namespace hearth {

// Trunk by layer, then lm_head, then mtp.* where the geometry has it.
std::vector<MatrixSpec> DenseSpecs(const ModelGeometry& geometry);

}  // namespace hearth
