// Where the n-gram table of a checkpoint lies: one tensor or shards in order, each with rows of
//   BF16, F32           row_dim values
//   F8_E4M3             row_dim codes; one weight_scale for the table
//   U8 (NVFP4)          row_dim / 2 bytes of codes; weight_scale F8_E4M3 (rows, row_dim / 16)
//   beside each
//                       shard and one weight_scale_2 for the table
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/convert/checkpoint.h"
#include "pack/convert/hf_config.h"
#include "pack/convert/tensor_catalog.h"

namespace hearth {

struct NgramTable {
  struct Part {
    SafetensorsSet::Location weight;
    SafetensorsSet::Location scale;  // NVFP4
    uint64_t row_begin = 0;          // of the whole table
    uint64_t row_count = 0;
  };
  NgramSource source;
  std::vector<Part> parts;  // in order of rows
};

// Finds the table and the hash constants, and completes config.geometry.ngram with row count and
// constants: those of the file where it has them, derived ones where it has none. Does nothing for
// a model without a table.
absl::StatusOr<NgramTable> FindNgramTable(TensorCatalog& catalog, HfConfig& config);

// Rows as NgramSource describes them; NVFP4 rows are codes, then E4M3 scales. OutOfRange for rows
// beyond the table, DataLoss naming tensor and position of a NaN, an infinity or a bad scale code.
absl::Status ReadNgramTableRows(const NgramTable& table, uint64_t row_begin, uint64_t row_count,
                                std::span<std::byte> out);

}  // namespace hearth
