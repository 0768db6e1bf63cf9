// Reads every byte of a pack once and names what is not as it was written: file, and within it the
// tensor, the expert, the n-gram rows, the padding or the directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth {

struct VerifyFault {
  std::string file;  // name within the pack
  std::string
      where;  // "layer 3 expert 17", "tensor lm_head", "rows 0 to 4095", "padding at 1024", ""
  std::string what;  // expected and found
};

struct VerifyReport {
  uint64_t file_count = 0;
  uint64_t bytes_read = 0;
  std::vector<VerifyFault> faults;  // at most kVerifyFaultsMax of them
  uint64_t fault_count = 0;         // all of them
  bool ok() const { return fault_count == 0; }
};
inline constexpr uint64_t kVerifyFaultsMax = 100;

struct VerifyProgress {
  std::string file;
  uint64_t done_bytes = 0;  // of the whole pack
  uint64_t total_bytes = 0;
};
using VerifyProgressFn = std::function<void(const VerifyProgress&)>;

// An error is only returned when there is nothing to verify (no pack, or it cannot be read at all).
absl::StatusOr<VerifyReport> VerifyPack(const std::string& dir, const VerifyProgressFn& progress,
                                        uint32_t worker_count = 0);  // 0: one per hardware thread

}  // namespace hearth
