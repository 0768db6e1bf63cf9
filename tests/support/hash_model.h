// A model whose weights are a hash of their names: any implementation anywhere can compute it
// without files. Its golden values (tests/golden/tiny_golden.json) come from a float64 reference of
// the network.
//   h = FNV-1a64(name); u = 2 * (SplitMix64(h + k) >> 11) * 2^-53 - 1 for element k, then by kind:
//   matrices u * sqrt(3 / cols); (1+w) norms 0.1u; the GDN norm 1 + 0.1u; convolutions 0.5u;
//   embedding, n-gram table and dt_bias u; A_log ln(1 + 7.5(u + 1)); all rounded to fp32
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pack/convert/checkpoint.h"

namespace hearth {

class HashModel : public Checkpoint {
 public:
  HashModel();

  const ModelGeometry& geometry() const override { return geometry_; }
  const std::string& dialect() const override { return dialect_; }
  absl::StatusOr<std::string> ContentHash(const HashProgressFn&) const override {
    return std::string(32, '0');
  }
  std::span<const DenseInfo> dense() const override { return dense_; }
  absl::Status ReadDenseRows(std::string_view name, uint64_t row_begin, uint64_t row_count,
                             std::span<float> out) const override;
  ExpertFormat expert_format(LayerId) const override { return ExpertFormat::kF32; }
  absl::Status ReadExpert(ExpertKey key, SourceExpert& expert) const override;
  const NgramSource& ngram() const override { return ngram_; }
  absl::Status ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                             std::span<std::byte> out) const override;
  absl::StatusOr<std::string> ReadText(std::string_view name) const override;

 private:
  void AddLayer(const std::string& prefix, bool attention);
  void AddHyperConnection(const std::string& prefix, bool inject);

  ModelGeometry geometry_;
  std::string dialect_ = "bf16";
  std::vector<DenseInfo> dense_;
  NgramSource ngram_;
};

}  // namespace hearth
