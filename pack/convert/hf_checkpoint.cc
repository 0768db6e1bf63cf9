// Checkpoint over a directory in the Hugging Face layout.
#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "pack/convert/checkpoint.h"
#include "pack/convert/dense_specs.h"
#include "pack/convert/expert_source.h"
#include "pack/convert/hf_config.h"
#include "pack/convert/matrix_source.h"
#include "pack/convert/ngram_source.h"
#include "pack/convert/tensor_catalog.h"
#include "pack/format/content_hash.h"
#include "pack/reader/safetensors.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// hf_quant_config.json may list every module: about 100 bytes for each of some 100,000.
constexpr uint64_t kTextBytesMax = 64_MiB;
constexpr uint64_t kHashChunkBytes = 4_MiB;
constexpr const char* kHashedTexts[] = {"config.json", "generation_config.json",
                                        "hf_quant_config.json", "model.safetensors.index.json"};

absl::StatusOr<std::string> ReadOptional(const std::string& path) {
  if (!FileExists(path)) return std::string();
  return ReadFile(path, kTextBytesMax);
}

absl::StatusOr<HfConfig> ReadConfig(const std::string& dir) {
  HfConfigTexts texts;
  texts.config_path = JoinPath(dir, "config.json");
  texts.generation_path = JoinPath(dir, "generation_config.json");
  texts.quant_path = JoinPath(dir, "hf_quant_config.json");
  HEARTH_ASSIGN_OR_RETURN(texts.config, ReadFile(texts.config_path, kTextBytesMax));
  HEARTH_ASSIGN_OR_RETURN(texts.generation, ReadOptional(texts.generation_path));
  HEARTH_ASSIGN_OR_RETURN(texts.quant, ReadOptional(texts.quant_path));
  return ParseHfConfig(texts);
}

// A dense tensor can be rounded to BF16 without loss.
bool FitsBf16(const MatrixSource& source) {
  return source.encoding == MatrixEncoding::kMxfp8 ||
         (source.encoding == MatrixEncoding::kFloat && source.dtype() == SourceDtype::kBf16);
}

class HfCheckpoint final : public Checkpoint {
 public:
  HfCheckpoint(std::string dir, SafetensorsSet set, HfConfig config)
      : dir_(std::move(dir)), set_(std::move(set)), config_(std::move(config)) {}

  absl::Status Find();

  const ModelGeometry& geometry() const override { return config_.geometry; }
  const std::string& dialect() const override { return dialect_; }
  absl::StatusOr<std::string> ContentHash(const HashProgressFn& progress) const override;
  std::span<const DenseInfo> dense() const override { return dense_; }
  absl::Status ReadDenseRows(std::string_view name, uint64_t row_begin, uint64_t row_count,
                             std::span<float> out) const override;
  ExpertFormat expert_format(LayerId layer) const override;
  absl::Status ReadExpert(ExpertKey key, SourceExpert& expert) const override;
  const NgramSource& ngram() const override { return ngram_.source; }
  absl::Status ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                             std::span<std::byte> out) const override;
  absl::StatusOr<std::string> ReadText(std::string_view name) const override;

 private:
  absl::Status FindDense(TensorCatalog& catalog);
  absl::Status FindAllExperts(TensorCatalog& catalog);

  std::string dir_;
  SafetensorsSet set_;
  HfConfig config_;
  std::string dialect_;
  std::vector<DenseInfo> dense_;
  std::vector<MatrixSource> dense_sources_;  // parallel to dense_
  absl::flat_hash_map<std::string, size_t> dense_index_;
  std::vector<LayerExperts> experts_;  // by layer, the MTP layer last
  NgramTable ngram_;
};

absl::Status HfCheckpoint::Find() {
  ModelGeometry& geometry = config_.geometry;
  HEARTH_ASSIGN_OR_RETURN(TensorCatalog catalog,
                          TensorCatalog::Create(set_, dir_, geometry.has_mtp));
  // Exports made for engines without a draft head leave it out and keep the configuration.
  geometry.has_mtp = geometry.has_mtp && catalog.HasPrefix("mtp.");
  const std::string config_path = JoinPath(dir_, "config.json");
  NgramGeometry without_table;
  std::swap(geometry.ngram, without_table);
  if (const absl::Status shape = geometry.Validate(); !shape.ok()) {
    return Annotate(shape, config_path);
  }
  std::swap(geometry.ngram, without_table);
  HEARTH_ASSIGN_OR_RETURN(ngram_, FindNgramTable(catalog, config_));
  if (const absl::Status shape = geometry.Validate(); !shape.ok()) {
    return Annotate(shape, config_path);
  }
  HEARTH_RETURN_IF_ERROR(FindDense(catalog));
  HEARTH_RETURN_IF_ERROR(FindAllExperts(catalog));
  return catalog.CheckAllTaken();
}

absl::Status HfCheckpoint::FindDense(TensorCatalog& catalog) {
  for (const MatrixSpec& spec : DenseSpecs(config_.geometry)) {
    MatrixSource source;
    if (spec.module == "lm_head" && config_.tie_word_embeddings && !catalog.Has("lm_head.weight")) {
      source = dense_sources_[dense_index_.at("embed_tokens")];
    } else {
      HEARTH_ASSIGN_OR_RETURN(source, FindMatrix(catalog, config_.quant, spec));
    }
    dense_index_.emplace(spec.module, dense_.size());
    dense_.push_back({.name = spec.module,
                      .rows = source.rows,
                      .cols = source.cols,
                      .is_f32_source = !FitsBf16(source)});
    dense_sources_.push_back(source);
  }
  return absl::OkStatus();
}

absl::Status HfCheckpoint::FindAllExperts(TensorCatalog& catalog) {
  const ModelGeometry& geometry = config_.geometry;
  for (uint32_t i = 0; i < geometry.layer_count(); ++i) {
    const std::string prefix = absl::StrCat("layers.", i, ".mlp.experts.");
    HEARTH_ASSIGN_OR_RETURN(LayerExperts layer,
                            FindExperts(catalog, config_.quant, geometry, prefix, true));
    experts_.push_back(std::move(layer));
  }
  dialect_ = DialectOf(experts_);
  if (!geometry.has_mtp) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(LayerExperts layer, FindExperts(catalog, config_.quant, geometry,
                                                          "mtp.layers.0.mlp.experts.", false));
  experts_.push_back(std::move(layer));
  return absl::OkStatus();
}

absl::Status HfCheckpoint::ReadDenseRows(std::string_view name, uint64_t row_begin,
                                         uint64_t row_count, std::span<float> out) const {
  const auto it = dense_index_.find(ToAbsl(name));
  if (it == dense_index_.end()) {
    return absl::NotFoundError(
        absl::StrCat(dir_, ": no dense tensor '", absl::CHexEscape(ToAbsl(name)), "'"));
  }
  const MatrixSource& source = dense_sources_[it->second];
  if (row_begin > source.rows || row_count > source.rows - row_begin) {
    return absl::OutOfRangeError(absl::StrCat(dir_, ": rows ", row_begin, " to ",
                                              row_begin + row_count, " of ", ToAbsl(name),
                                              ", which has ", source.rows));
  }
  return ReadMatrixRows(source, row_begin, row_count, out);
}

ExpertFormat HfCheckpoint::expert_format(LayerId layer) const {
  HEARTH_CHECK(layer.value < experts_.size());
  return experts_[layer.value].format;
}

absl::Status HfCheckpoint::ReadExpert(ExpertKey key, SourceExpert& expert) const {
  HEARTH_CHECK(key.layer.value < experts_.size());
  return ReadLayerExpert(experts_[key.layer.value], config_.geometry, key.expert, expert);
}

absl::Status HfCheckpoint::ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                                         std::span<std::byte> out) const {
  const absl::Status status = ReadNgramTableRows(ngram_, row_begin, row_count, out);
  return absl::IsOutOfRange(status) ? Annotate(status, dir_) : status;
}

absl::StatusOr<std::string> HfCheckpoint::ReadText(std::string_view name) const {
  if (name.empty() || name.find('/') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir_, ": '", absl::CHexEscape(ToAbsl(name)), "' is not a file name"));
  }
  return ReadFile(JoinPath(dir_, name), kTextBytesMax);
}

absl::StatusOr<std::string> HfCheckpoint::ContentHash(const HashProgressFn& progress) const {
  std::set<std::string> names;
  for (const char* name : kHashedTexts) {
    if (FileExists(JoinPath(dir_, name))) names.insert(name);
  }
  for (const SafetensorsFile& file : set_.files()) {
    names.insert(file.file().path().substr(JoinPath(dir_, "").size()));
  }
  std::vector<RandomAccessFile> files;
  uint64_t total_bytes = 0;
  for (const std::string& name : names) {
    HEARTH_ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(JoinPath(dir_, name)));
    total_bytes += file.bytes();
    files.push_back(std::move(file));
  }
  ContentHasher hasher;
  std::vector<std::byte> buffer;
  uint64_t done_bytes = 0;
  size_t index = 0;
  for (const std::string& name : names) {
    const RandomAccessFile& file = files[index++];
    const std::array<uint64_t, 2> head = {name.size(), file.bytes()};
    hasher.Update(std::as_bytes(std::span(head)));
    hasher.Update(std::string_view(name));
    for (uint64_t at = 0; at < file.bytes(); at += buffer.size()) {
      buffer.resize(std::min<uint64_t>(kHashChunkBytes, file.bytes() - at));
      HEARTH_RETURN_IF_ERROR(file.ReadAt(at, buffer));
      hasher.Update(buffer);
      done_bytes += buffer.size();
      if (progress) progress(done_bytes, total_bytes);
    }
  }
  return hasher.HexDigest();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(HfConfig config, ReadConfig(dir));
  HEARTH_ASSIGN_OR_RETURN(SafetensorsSet set, SafetensorsSet::Open(dir));
  auto checkpoint = std::make_unique<HfCheckpoint>(dir, std::move(set), std::move(config));
  HEARTH_RETURN_IF_ERROR(checkpoint->Find());
  return checkpoint;
}

}  // namespace hearth
