// A regular file opened for aligned reads past the page cache (O_DIRECT), where its file system
// takes them; else for reads through it, with one line that says why.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/unique_handle.h"

namespace hearth {

// What the file system asks of direct reads.
struct DirectDemand {
  bool known = false;    // the kernel told (STATX_DIOALIGN, Linux 6.1)
  bool allowed = false;  // meaningless when not known
  uint64_t memory_bytes = 0;
  uint64_t offset_bytes = 0;  // of offsets and lengths
};

// Why a caller whose requests are multiples of `align_bytes` cannot read directly; empty: they can,
// or it takes an attempt to know.
std::string WhyNotDirect(const DirectDemand& demand, uint64_t align_bytes);

class DirectFile {
 public:
  // `align_bytes` is what all requests will be multiples of. ResourceExhausted names RLIMIT_NOFILE
  // when there is no descriptor left even at the hard limit.
  static absl::StatusOr<std::unique_ptr<DirectFile>> Open(const std::string& path, bool want_direct,
                                                          uint64_t align_bytes);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // at open
  int fd() const { return fd_.get(); }
  // Thread-safe: once direct reads are refused, all further ones go through the page cache.
  bool direct() const { return direct_.load(std::memory_order_acquire); }
  void StopDirect();
  // Why it is not direct although that was wanted; empty otherwise.
  std::string Note() const;

 private:
  DirectFile(UniqueFd fd, std::string path, uint64_t bytes);
  std::string ProbeDirect(uint64_t align_bytes);

  UniqueFd fd_;
  std::string path_;
  uint64_t bytes_ = 0;
  std::atomic<bool> direct_{false};
  bool opened_direct_ = false;
  std::string refusal_;  // at open
};

}  // namespace hearth
