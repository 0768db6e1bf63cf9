// A checkpoint as published, whatever its dialect: geometry, dense tensors decoded exactly to fp32,
// experts in the encoding that they have, n-gram rows as bytes. Streams: holds no tensor data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/expert_layout.h"
#include "pack/format/geometry.h"
#include "pack/format/manifest.h"
#include "runtime/base/ids.h"

namespace hearth {

// A dense tensor under its pack name (see pack/reader/pack.h), folded to two dimensions.
struct DenseInfo {
  std::string name;
  uint64_t rows = 0;  // 1 for vectors
  uint64_t cols = 0;
  bool is_f32_source = false;  // BF16 cannot hold it (F32 or a product of scales)
};

// One projection of one expert, row-major, as in the source.
struct SourceMatrix {
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<uint8_t> codes;       // kNvfp4: two per byte, even element low; kFp8: one per byte
  std::vector<uint8_t> scales;      // kNvfp4: E4M3 (rows, cols/16), linear
  float multiplier = 1;             // kNvfp4: always a multiplier, whatever the dialect stores
  std::vector<float> block_scales;  // kFp8: (ceil(rows/128), ceil(cols/128))
  std::vector<float> values;        // kBf16, kF32: decoded
};

struct SourceExpert {
  ExpertFormat format = ExpertFormat::kNvfp4;
  SourceMatrix gate, up, down;
};

struct NgramSource {
  NgramRowFormat format = NgramRowFormat::kBf16;
  uint64_t row_count = 0;
  uint32_t row_dim = 0;
  uint64_t row_bytes = 0;
  float scale = 1;
};

using HashProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  // Finds config.json, the index and the shards; names what is missing, foreign or malformed.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir);

  virtual const ModelGeometry& geometry() const = 0;
  virtual const std::string& dialect() const = 0;
  // XXH3-128 over the source files, in name order; reads every byte, and says how far it is, null
  // for nobody.
  virtual absl::StatusOr<std::string> ContentHash(const HashProgressFn& progress) const = 0;

  virtual std::span<const DenseInfo> dense() const = 0;  // in a fixed order; trunk, then mtp.*
  // Rows [row_begin, row_begin + row_count) of a dense tensor, decoded exactly: out (row_count,
  // cols).
  virtual absl::Status ReadDenseRows(std::string_view name, uint64_t row_begin, uint64_t row_count,
                                     std::span<float> out) const = 0;

  // All experts of one layer share a format. `layer` may be the MTP layer's id.
  virtual ExpertFormat expert_format(LayerId layer) const = 0;
  // Reuses the vectors of `expert`. DataLoss names the tensor and position of a NaN or negative
  // scale.
  virtual absl::Status ReadExpert(ExpertKey key, SourceExpert& expert) const = 0;

  virtual const NgramSource& ngram() const = 0;  // row_count == 0: none
  virtual absl::Status ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                                     std::span<std::byte> out) const = 0;

  // A small text file of the checkpoint, NotFound when it has none: tokenizer.json,
  // tokenizer_config.json, chat_template.jinja, generation_config.json.
  virtual absl::StatusOr<std::string> ReadText(std::string_view name) const = 0;
};

}  // namespace hearth
