// Accounting of what one rendering spends.
#include "runtime/model/chat/jinja_limits.h"

#include "absl/strings/str_cat.h"

namespace hearth::jinja {

absl::Status Budget::ChargeIterations(int64_t count) {
  if (count > kIterationsMax - iterations_) {
    iterations_ = kIterationsMax;
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kIterationsMax, " loop iterations"));
  }
  iterations_ += count;
  return absl::OkStatus();
}

absl::Status Budget::ChargeString(uint64_t bytes) {
  if (bytes > kOutputBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a string of ", bytes, " bytes, at most ", kOutputBytesMax));
  }
  if (bytes > kProducedBytesMax - produced_bytes_) {
    produced_bytes_ = kProducedBytesMax;
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kProducedBytesMax, " bytes of strings produced on the way"));
  }
  produced_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status Budget::ChargeScan(uint64_t bytes) {
  if (bytes > kScannedBytesMax - scanned_bytes_) {
    scanned_bytes_ = kScannedBytesMax;
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kScannedBytesMax, " bytes of text searched"));
  }
  scanned_bytes_ += bytes;
  return absl::OkStatus();
}

}  // namespace hearth::jinja
