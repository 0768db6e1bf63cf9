#include "pack/reader/pack.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/reader/container_reader.h"
#include "pack/reader/pack_geometry.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status ChecksumError(const RandomAccessFile& file, const std::string& what, uint32_t found,
                           uint32_t expected) {
  return absl::DataLossError(absl::StrCat(file.path(), ": ", what, ": checksum ", absl::Hex(found),
                                          ", expected ", absl::Hex(expected)));
}

}  // namespace

TensorFile::TensorFile(RandomAccessFile file, std::vector<TensorInfo> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)), by_name_(tensors_.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [this](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(OpenedContainer opened, OpenContainer(path, ContainerKind::kTensors));
  HEARTH_ASSIGN_OR_RETURN(auto tensors,
                          DecodeTensorDirectory(opened.directory, opened.header, path));
  TensorFile result(std::move(opened.file), std::move(tensors));
  const auto name = [&result](uint32_t i) -> const std::string& {
    return result.tensors_[result.by_name_[i]].name;
  };
  for (uint32_t i = 1; i < result.by_name_.size(); ++i) {
    if (name(i - 1) == name(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": directory: tensor \"", name(i), "\" occurs twice"));
    }
  }
  return result;
}

const TensorInfo* TensorFile::Find(std::string_view name) const {
  const auto it = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](uint32_t i, std::string_view n) { return std::string_view(tensors_[i].name) < n; });
  if (it == by_name_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

absl::Status TensorFile::Read(const TensorInfo& info, std::span<std::byte> into) const {
  HEARTH_CHECK(into.size() == info.bytes);
  HEARTH_RETURN_IF_ERROR(file_.ReadAt(info.offset_bytes, into));
  if (const uint32_t crc = Crc32c(into); crc != info.crc32c) {
    return ChecksumError(file_, absl::StrCat("tensor ", info.name), crc, info.crc32c);
  }
  return absl::OkStatus();
}

ExpertFile::ExpertFile(RandomAccessFile file, ExpertDirectory directory)
    : file_(std::move(file)), directory_(std::move(directory)) {}

absl::StatusOr<ExpertFile> ExpertFile::Open(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(OpenedContainer opened, OpenContainer(path, ContainerKind::kExperts));
  HEARTH_ASSIGN_OR_RETURN(auto directory,
                          DecodeExpertDirectory(opened.directory, opened.header, path));
  return ExpertFile(std::move(opened.file), std::move(directory));
}

uint64_t ExpertFile::offset_bytes(ExpertKey key) const {
  HEARTH_CHECK(key.layer.value < layer_count());
  HEARTH_CHECK(key.expert.value < expert_count());
  return directory_.layer_offsets_bytes[key.layer.value] +
         layout(key.layer).stride_bytes() * key.expert.value;
}

uint32_t ExpertFile::crc32c(ExpertKey key) const {
  HEARTH_CHECK(key.layer.value < layer_count());
  HEARTH_CHECK(key.expert.value < expert_count());
  return directory_.crcs[size_t{key.layer.value} * expert_count() + key.expert.value];
}

absl::Status ExpertFile::Read(ExpertKey key, std::span<std::byte> into) const {
  const uint64_t offset = offset_bytes(key);
  const uint64_t bytes = layout(key.layer).blob_bytes();
  HEARTH_CHECK(into.size() >= bytes);
  HEARTH_RETURN_IF_ERROR(file_.ReadAt(offset, into.first(bytes)));
  if (const uint32_t crc = Crc32c(into.first(bytes)); crc != crc32c(key)) {
    return ChecksumError(file_,
                         absl::StrCat("layer ", key.layer.value, " expert ", key.expert.value), crc,
                         crc32c(key));
  }
  return absl::OkStatus();
}

absl::StatusOr<Pack> Pack::Open(const std::string& dir) {
  const std::string manifest_path = JoinPath(dir, "manifest.json");
  auto text = ReadFile(manifest_path, kManifestBytesMax);
  if (!text.ok()) {
    if (!absl::IsNotFound(text.status())) return text.status();
    return absl::NotFoundError(
        absl::StrCat(dir, ": not a pack (no manifest.json); `hearth pack build` makes one"));
  }
  HEARTH_ASSIGN_OR_RETURN(Manifest manifest, Manifest::FromJson(*text, manifest_path));

  const auto listed = [&manifest](std::string_view name) {
    return std::any_of(manifest.files.begin(), manifest.files.end(),
                       [name](const PackFile& f) { return f.name == name; });
  };
  for (const PackFile& f : manifest.files) {
    const std::string path = JoinPath(dir, f.name);
    HEARTH_ASSIGN_OR_RETURN(const uint64_t found, FileBytes(path));
    if (found != f.bytes) {
      return absl::DataLossError(
          absl::StrCat(path, ": expected ", f.bytes, " bytes, found ", found));
    }
  }
  const ModelGeometry& g = manifest.geometry;
  const struct {
    std::string_view name;
    bool wanted;
  } required[] = {{"dense.bin", true},
                  {"experts.bin", true},
                  {"ngram.bin", g.ngram.row_count > 0},
                  {"mtp.bin", g.has_mtp}};
  for (const auto& r : required) {
    if (listed(r.name) != r.wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat(manifest_path, ": files: ", ToAbsl(r.name),
                       r.wanted ? " is missing" : " does not belong to this geometry"));
    }
  }

  HEARTH_ASSIGN_OR_RETURN(TensorFile dense, TensorFile::Open(JoinPath(dir, "dense.bin")));
  HEARTH_ASSIGN_OR_RETURN(ExpertFile experts, ExpertFile::Open(JoinPath(dir, "experts.bin")));
  std::unique_ptr<NgramFile> ngram;
  if (g.ngram.row_count > 0) {
    HEARTH_ASSIGN_OR_RETURN(NgramFile opened, NgramFile::Open(JoinPath(dir, "ngram.bin")));
    ngram = std::make_unique<NgramFile>(std::move(opened));
  }
  std::unique_ptr<TensorFile> mtp;
  if (g.has_mtp) {
    HEARTH_ASSIGN_OR_RETURN(TensorFile opened, TensorFile::Open(JoinPath(dir, "mtp.bin")));
    mtp = std::make_unique<TensorFile>(std::move(opened));
  }
  Pack pack{
      dir,           std::move(manifest), std::move(dense), std::move(experts), std::move(ngram),
      std::move(mtp)};
  HEARTH_RETURN_IF_ERROR(CheckPackGeometry(pack));
  return pack;
}

}  // namespace hearth
