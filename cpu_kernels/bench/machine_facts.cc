#include "cpu_kernels/bench/machine_facts.h"

#include <fstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kFileBytesMax = 64_KiB;  // what is looked for stands near the beginning
constexpr int kCacheIndexMax = 16;

// Files of the kernel have no length until they are read. Empty when there is none.
std::string ReadText(const std::string& root, std::string_view path) {
  std::ifstream in(JoinPath(root, path), std::ios::binary);
  std::string text(kFileBytesMax, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return std::string(absl::StripAsciiWhitespace(text));
}

// The value of the first "name : value" line.
std::string FirstValue(const std::string& text, std::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, ToAbsl(name))) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

// "32K" or "1M".
uint64_t ParseCacheBytes(std::string_view text) {
  if (text.empty()) return 0;
  const uint64_t unit = text.back() == 'K' ? 1_KiB : (text.back() == 'M' ? 1_MiB : 0);
  uint64_t count = 0;
  if (unit == 0 || !absl::SimpleAtoi(ToAbsl(text.substr(0, text.size() - 1)), &count)) return 0;
  return count * unit;
}

CacheBytes ReadCaches(const std::string& root) {
  CacheBytes caches;
  for (int i = 0; i < kCacheIndexMax; ++i) {
    const std::string dir = absl::StrCat("sys/devices/system/cpu/cpu0/cache/index", i);
    const std::string level = ReadText(root, dir + "/level");
    if (level.empty()) break;
    if (ReadText(root, dir + "/type") == "Instruction") continue;
    const uint64_t bytes = ParseCacheBytes(ReadText(root, dir + "/size"));
    if (level == "1") caches.l1d = bytes;
    if (level == "2") caches.l2 = bytes;
    if (level == "3") caches.l3 = bytes;
  }
  return caches;
}

// "always [madvise] never" as "madvise".
std::string Chosen(const std::string& text) {
  const size_t open = text.find('[');
  const size_t end = text.find(']');
  if (open == std::string::npos || end == std::string::npos || end < open) return "";
  return text.substr(open + 1, end - open - 1);
}

}  // namespace

MachineFacts ReadMachineFacts(const std::string& root) {
  MachineFacts facts;
  facts.cpu_model = FirstValue(ReadText(root, "proc/cpuinfo"), "model name");
  facts.caches = ReadCaches(root);
  facts.huge_pages = Chosen(ReadText(root, "sys/kernel/mm/transparent_hugepage/enabled"));
  const std::string load = ReadText(root, "proc/loadavg");
  if (!absl::SimpleAtod(load.substr(0, load.find(' ')), &facts.load_average)) {
    facts.load_average = 0;
  }
  return facts;
}

uint64_t HugePageBytesInUse(const std::string& root) {
  const std::string value = FirstValue(ReadText(root, "proc/self/smaps_rollup"), "AnonHugePages");
  uint64_t kib = 0;
  return absl::SimpleAtoi(value.substr(0, value.find(' ')), &kib) ? kib * 1_KiB : 0;
}

}  // namespace hearth
