// Names of CUDA's versions and architectures, with CUDA and without.
#include <charconv>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/gpu_info.h"

namespace hearth {
namespace {

// One entry of the list. What CMake spells out by itself ("all", "native") is taken to serve.
bool Serves(std::string_view entry, uint32_t sm) {
  uint32_t built = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), built);
  if (error != std::errc()) return true;
  const std::string_view rest(end, static_cast<size_t>(entry.data() + entry.size() - end));
  if (rest.starts_with('a')) return sm == built;
  if (rest == "-virtual") return sm >= built;
  const bool same_code = sm / 10 == built / 10 && sm >= built;
  return same_code || (rest.empty() && sm >= built);
}

}  // namespace

bool ArchitecturesServe(std::string_view architectures, uint32_t sm) {
  while (!architectures.empty()) {
    const size_t comma = architectures.find(',');
    if (Serves(architectures.substr(0, comma), sm)) return true;
    if (comma == std::string_view::npos) break;
    architectures.remove_prefix(comma + 1);
  }
  return false;
}

std::string CudaVersionName(uint32_t version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace hearth
