// A checkpoint that exists only as a function of (seed, tensor, position): any shape, any encoding,
// no files. For tests of the packer that need odd shapes, a large model in little memory, or source
// bits to compare.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pack/convert/checkpoint.h"

namespace hearth {

struct SyntheticOptions {
  uint64_t seed = 1;
  uint32_t hidden = 32;
  uint32_t width = 16;
  uint32_t expert_count = 3;
  uint32_t layer_count = 2;  // every fourth one is QSA, the others GDN
  uint32_t vocab_count = 48;
  ExpertFormat experts = ExpertFormat::kNvfp4;
  bool has_mtp = true;
  ExpertFormat mtp_experts = ExpertFormat::kBf16;
  uint64_t ngram_rows = 40;  // 0: no table
  uint32_t ngram_row_dim = 16;
  NgramRowFormat ngram_format = NgramRowFormat::kFp8;
  bool f32_dense = false;  // values that BF16 does not hold
};

class SyntheticCheckpoint final : public Checkpoint {
 public:
  explicit SyntheticCheckpoint(const SyntheticOptions& options);

  const ModelGeometry& geometry() const override { return geometry_; }
  const std::string& dialect() const override { return dialect_; }
  absl::StatusOr<std::string> ContentHash(const HashProgressFn& progress) const override;
  std::span<const DenseInfo> dense() const override { return dense_; }
  absl::Status ReadDenseRows(std::string_view name, uint64_t row_begin, uint64_t row_count,
                             std::span<float> out) const override;
  ExpertFormat expert_format(LayerId layer) const override;
  absl::Status ReadExpert(ExpertKey key, SourceExpert& expert) const override;
  const NgramSource& ngram() const override { return ngram_; }
  absl::Status ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                             std::span<std::byte> out) const override;
  absl::StatusOr<std::string> ReadText(std::string_view name) const override;

  // From the layer on, reading an expert fails: an interrupted source.
  uint32_t fail_at_layer = UINT32_MAX;
  std::map<std::string, std::string, std::less<>> texts;

 private:
  SyntheticOptions options_;
  ModelGeometry geometry_;
  std::string dialect_ = "bf16";
  std::vector<DenseInfo> dense_;
  NgramSource ngram_;
};

ModelGeometry SyntheticGeometry(const SyntheticOptions& options);

}  // namespace hearth
