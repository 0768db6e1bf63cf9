// The tensors of a checkpoint by the names that a pack uses, without the ones that a text engine
// drops. Every tensor has to be taken by something: what remains is not understood, and refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/reader/safetensors.h"

namespace hearth {

class TensorCatalog {
 public:
  using Location = SafetensorsSet::Location;

  // Borrows `set`. Drops the vision tower, activation scales, buffers and, unless `keep_mtp`,
  // mtp.*. Refuses a tensor that is there with two prefixes.
  static absl::StatusOr<TensorCatalog> Create(const SafetensorsSet& set, const std::string& dir,
                                              bool keep_mtp);

  bool Has(std::string_view canonical) const;
  bool HasPrefix(std::string_view prefix) const;  // any tensor; linear in their number
  // Marks the tensor as understood; both pointers are null when there is none.
  Location Take(std::string_view canonical);
  // As Take(); NotFound naming it when there is none.
  absl::StatusOr<Location> Require(std::string_view canonical);
  // InvalidArgument listing the first tensors that nobody took.
  absl::Status CheckAllTaken() const;

  const std::string& dir() const { return dir_; }

 private:
  struct Entry {
    Location at;
    bool taken = false;
  };
  explicit TensorCatalog(std::string dir);
  std::string dir_;
  absl::flat_hash_map<std::string_view, Entry> entries_;
};

// "<path of the shard>: <full name>", for messages.
std::string TensorLabel(const SafetensorsSet::Location& at);

}  // namespace hearth
