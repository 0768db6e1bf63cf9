#include "pack/reader/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include <simdjson.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kIndexBytesMax = 512_MiB;
constexpr size_t kPrefixBytes = 64;  // enough to recognise a Git LFS pointer
constexpr size_t kListedMax = 5;     // names in one message
constexpr const char* kIndexName = "model.safetensors.index.json";

struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::string shard;
  };
  std::vector<Entry> entries;
};

std::string Listed(std::span<const std::string> names) {
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(names.size(), kListedMax))) {
    shown.push_back(absl::CHexEscape(name));
  }
  if (names.size() > kListedMax) shown.push_back(absl::StrCat(names.size() - kListedMax, " more"));
  return absl::StrJoin(shown, ", ");
}

// A path within the checkpoint: some releases keep their shards in a folder of their own.
bool IsShardName(std::string_view name) {
  if (!name.ends_with(".safetensors") || name.find('\0') != name.npos) return false;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(name), '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

absl::StatusOr<ShardIndex> ParseIndex(const std::string& text, const std::string& path) {
  namespace ondemand = simdjson::ondemand;
  const auto malformed = [&](simdjson::error_code error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", simdjson::error_message(error)));
  };
  const simdjson::padded_string padded(text);
  ondemand::parser parser;
  ondemand::document document;
  if (const auto error = parser.iterate(padded).get(document)) return malformed(error);
  ondemand::object map;
  if (const auto error = document["weight_map"].get_object().get(map)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": weight_map: ", simdjson::error_message(error)));
  }
  ShardIndex index;
  for (auto field : map) {
    std::string_view tensor, shard;
    if (const auto error = field.unescaped_key().get(tensor)) return malformed(error);
    index.entries.push_back({std::string(tensor), {}});
    if (const auto error = field.value().get_string().get(shard)) return malformed(error);
    index.entries.back().shard = shard;
    if (!IsShardName(shard)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": '", absl::CHexEscape(index.entries.back().tensor), "' is in '",
          absl::CHexEscape(ToAbsl(shard)), "', which is not the name of a .safetensors file"));
    }
  }
  return index;
}

absl::StatusOr<std::vector<std::string>> ListShards(const std::string& dir) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(dir, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (IsShardName(name)) names.push_back(std::move(name));
  }
  if (error) return ErrnoStatus(error.value(), dir);
  std::sort(names.begin(), names.end());
  return names;
}

// The shards to open, in name order. With an index they are the ones that it names; other files,
// which some releases leave in the directory, are not looked at.
absl::StatusOr<std::vector<std::string>> ChooseShards(const std::string& dir,
                                                      const ShardIndex* index) {
  if (index == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> present, ListShards(dir));
    if (present.size() == 1) return present;
    if (present.empty()) return absl::NotFoundError(absl::StrCat(dir, ": no .safetensors file"));
    return absl::NotFoundError(
        absl::StrCat(dir, ": ", present.size(), " .safetensors files and no ", kIndexName));
  }
  std::set<std::string> named;
  for (const ShardIndex::Entry& entry : index->entries) named.insert(entry.shard);
  std::vector<std::string> missing;
  for (const std::string& name : named) {
    if (!FileExists(JoinPath(dir, name))) missing.push_back(name);
  }
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat(dir, ": ", missing.size(), " of ", named.size(),
                                            " shards missing: ", Listed(missing)));
  }
  return std::vector<std::string>(named.begin(), named.end());
}

}  // namespace

SafetensorsFile::SafetensorsFile(RandomAccessFile file, std::vector<SourceTensor> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(path));
  std::vector<std::byte> front(std::min<uint64_t>(file.bytes(), kPrefixBytes));
  HEARTH_RETURN_IF_ERROR(file.ReadAt(0, front));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t header_bytes,
                          SafetensorsHeaderBytes(front, file.bytes(), path));
  front.resize(header_bytes);
  HEARTH_RETURN_IF_ERROR(file.ReadAt(0, front));
  HEARTH_ASSIGN_OR_RETURN(std::vector<SourceTensor> tensors,
                          ParseSafetensors(front, file.bytes(), path));
  return SafetensorsFile(std::move(file), std::move(tensors));
}

absl::Status SafetensorsFile::Read(const SourceTensor& tensor, uint64_t begin_bytes,
                                   std::span<std::byte> into) const {
  HEARTH_CHECK(begin_bytes <= tensor.bytes);
  HEARTH_CHECK(into.size() <= tensor.bytes - begin_bytes);
  return file_.ReadAt(tensor.offset_bytes + begin_bytes, into);
}

absl::StatusOr<SafetensorsSet> SafetensorsSet::Open(const std::string& dir) {
  const std::string index_path = JoinPath(dir, kIndexName);
  std::optional<ShardIndex> index;
  if (FileExists(index_path)) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path, kIndexBytesMax));
    HEARTH_ASSIGN_OR_RETURN(index, ParseIndex(text, index_path));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> shards,
                          ChooseShards(dir, index ? &*index : nullptr));
  SafetensorsSet set;
  for (const std::string& shard : shards) {
    HEARTH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(JoinPath(dir, shard)));
    set.files_.push_back(std::move(file));
  }
  for (const SafetensorsFile& file : set.files_) {
    for (const SourceTensor& tensor : file.tensors()) {
      const auto [it, is_new] = set.by_name_.try_emplace(tensor.name, Location{&file, &tensor});
      if (!is_new) {
        return absl::InvalidArgumentError(
            absl::StrCat(file.file().path(), ": '", absl::CHexEscape(tensor.name), "' is also in ",
                         it->second.file->file().path()));
      }
    }
  }
  if (!index) return set;
  std::set<std::string_view> listed;
  for (const ShardIndex::Entry& entry : index->entries) {
    const std::string name = absl::CHexEscape(entry.tensor);
    if (!listed.insert(entry.tensor).second) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": '", name, "' is listed twice"));
    }
    const std::string expected = JoinPath(dir, entry.shard);
    const Location at = set.Find(entry.tensor);
    if (at.tensor == nullptr) {
      return absl::NotFoundError(absl::StrCat(index_path, ": '", name, "' is listed in ",
                                              entry.shard, ", which does not have it"));
    }
    if (at.file->file().path() != expected) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": '", name, "' is listed in ",
                                                     entry.shard, ", found in ",
                                                     at.file->file().path()));
    }
  }
  return set;
}

SafetensorsSet::Location SafetensorsSet::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? Location{} : it->second;
}

}  // namespace hearth
