#include "runtime/base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr size_t kQuotedBytesMax = 60;  // of a refused list in a message

// Takes a processor id off the front of `text`.
bool TakeCpu(std::string_view& text, uint32_t* cpu) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *cpu);
  if (error != std::errc() || *cpu > kCpuIdMax) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Appends the range at the front of `text`, "3" or "0-3", and takes it off.
bool TakeRange(std::string_view& text, std::vector<uint32_t>& cpus) {
  uint32_t first = 0;
  if (!TakeCpu(text, &first)) return false;
  uint32_t last = first;
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    if (!TakeCpu(text, &last) || last < first) return false;
  }
  for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return cpus.size() <= 4 * size_t{kCpuIdMax};  // bounds what repeated ranges may take
}

}  // namespace

std::vector<uint32_t> AllowedCpus() {
  // The mask must have room for every processor that the kernel knows, or the call is refused.
  for (int cpus_max = 1024; cpus_max <= 1 << 16; cpus_max *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus_max);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(cpus_max),
                                                                [](cpu_set_t* m) { CPU_FREE(m); });
    if (mask == nullptr || sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    std::vector<uint32_t> cpus;
    for (int cpu = 0; cpu < cpus_max; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.push_back(static_cast<uint32_t>(cpu));
    }
    return cpus;
  }
  return {};
}

absl::Status AllowCpus(std::span<const uint32_t> cpus) {
  if (cpus.empty()) return absl::OkStatus();
  const size_t bytes = CPU_ALLOC_SIZE(kCpuIdMax + 1);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(kCpuIdMax + 1),
                                                              [](cpu_set_t* m) { CPU_FREE(m); });
  if (mask == nullptr) return absl::ResourceExhaustedError("no memory for a mask of CPUs");
  CPU_ZERO_S(bytes, mask.get());
  for (const uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, mask.get());
  if (sched_setaffinity(0, bytes, mask.get()) != 0) return ErrnoStatus(errno, "sched_setaffinity");
  return absl::OkStatus();
}

uint32_t AllowedCpuCount() {
  const auto count = static_cast<uint32_t>(AllowedCpus().size());
  return count != 0 ? count : std::max(1u, std::thread::hardware_concurrency());
}

absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text) {
  std::vector<uint32_t> cpus;
  std::string_view rest = text;
  bool ok = TakeRange(rest, cpus);
  while (ok && !rest.empty()) {
    ok = rest.front() == ',';
    if (ok) rest.remove_prefix(1);
    ok = ok && TakeRange(rest, cpus);
  }
  if (!ok) {
    return absl::InvalidArgumentError(
        absl::StrCat("found '", ToAbsl(text.substr(0, kQuotedBytesMax)),
                     text.size() > kQuotedBytesMax ? "...'" : "'",
                     ", expected CPU numbers and ranges with commas between them, such as 0-3,8"));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string FormatCpuList(std::span<const uint32_t> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    absl::StrAppend(&text, i == 0 ? "" : ",", cpus[i]);
    if (last > i) absl::StrAppend(&text, "-", cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace hearth
