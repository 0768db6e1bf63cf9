#include "pack/convert/tensor_catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "pack/convert/quant_config.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr size_t kListedMax = 5;

// Activation and KV-cache scales, which weight-only arithmetic never reads, and buffers that can be
// recomputed.
bool IsDropped(std::string_view full_name) {
  for (const std::string_view prefix : {"model.visual.", "visual."}) {
    if (full_name.starts_with(prefix)) return true;
  }
  for (const std::string_view suffix :
       {".input_scale", ".input_global_scale", ".k_scale", ".v_scale", ".rotary_emb.inv_freq",
        ".ple_embedding.token_lookup"}) {
    if (full_name.ends_with(suffix)) return true;
  }
  return full_name.find(".ple_embedding.hashstats_") != std::string_view::npos;
}

}  // namespace

std::string TensorLabel(const SafetensorsSet::Location& at) {
  return absl::StrCat(at.file->file().path(), ": ", absl::CHexEscape(at.tensor->name));
}

TensorCatalog::TensorCatalog(std::string dir) : dir_(std::move(dir)) {}

absl::StatusOr<TensorCatalog> TensorCatalog::Create(const SafetensorsSet& set,
                                                    const std::string& dir, bool keep_mtp) {
  TensorCatalog catalog(dir);
  catalog.entries_.reserve(set.tensor_count());
  for (const SafetensorsFile& file : set.files()) {
    for (const SourceTensor& tensor : file.tensors()) {
      const std::string_view canonical = CanonicalName(tensor.name);
      if (IsDropped(tensor.name) || (!keep_mtp && canonical.starts_with("mtp."))) continue;
      const Entry entry{{&file, &tensor}, false};
      const auto [it, is_new] = catalog.entries_.try_emplace(canonical, entry);
      if (!is_new) {
        return absl::InvalidArgumentError(
            absl::StrCat(TensorLabel(entry.at), ": the same as ", TensorLabel(it->second.at)));
      }
    }
  }
  return catalog;
}

bool TensorCatalog::Has(std::string_view canonical) const { return entries_.contains(canonical); }

bool TensorCatalog::HasPrefix(std::string_view prefix) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& entry) { return entry.first.starts_with(prefix); });
}

TensorCatalog::Location TensorCatalog::Take(std::string_view canonical) {
  const auto it = entries_.find(canonical);
  if (it == entries_.end()) return {};
  it->second.taken = true;
  return it->second.at;
}

absl::StatusOr<TensorCatalog::Location> TensorCatalog::Require(std::string_view canonical) {
  const Location at = Take(canonical);
  if (at.tensor != nullptr) return at;
  return absl::NotFoundError(absl::StrCat(dir_, ": no tensor ", ToAbsl(canonical)));
}

absl::Status TensorCatalog::CheckAllTaken() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (!entry.taken) names.push_back(absl::CHexEscape(entry.at.tensor->name));
  }
  if (names.empty()) return absl::OkStatus();
  std::sort(names.begin(), names.end());
  const size_t count = names.size();
  names.resize(std::min(count, kListedMax));
  return absl::InvalidArgumentError(absl::StrCat(
      dir_, ": ", count, " tensors are not part of this architecture: ", absl::StrJoin(names, ", "),
      count > kListedMax ? ", ..." : ""));
}

}  // namespace hearth
