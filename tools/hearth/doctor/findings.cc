// The rules. Each looks at one part of the facts.
#include "tools/hearth/doctor/findings.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

// io_uring's registered buffers and pinned RAM both count as locked.
constexpr uint64_t kLockedBytesWanted = 64_MiB;
constexpr uint64_t kDescriptorsWanted = 1024;
constexpr uint32_t kDriverWanted = 12000;  // CUDA 12.0

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

void AddCpu(const CpuFacts& cpu, std::vector<Finding>& findings) {
  if (cpu.isa == "scalar") {
    findings.push_back({"cpu.isa", Severity::kWarning,
                        "no AVX2: weights are multiplied one by one, some ten times slower",
                        "use a processor with AVX2, FMA and F16C; in a virtual machine, pass the "
                        "host's processor through"});
  } else if (cpu.isa == "avx2") {
    findings.push_back({"cpu.isa", Severity::kAdvice, "kernels for avx2",
                        "kernels for avx512 are faster where the processor has it; in a virtual "
                        "machine, pass the host's processor through"});
  } else {
    findings.push_back({"cpu.isa", Severity::kOk, absl::StrCat("kernels for ", cpu.isa), ""});
  }
  const std::string cores = absl::StrCat(cpu.worker_count, " workers for ", cpu.core_count,
                                         " cores (", cpu.allowed_cpu_count, " CPUs allowed)");
  if (cpu.quota.has_value() && cpu.quota->cpus < cpu.core_count) {
    findings.push_back(
        {"cpu.quota", Severity::kAdvice,
         absl::StrFormat("%s: a quota of %.1f CPUs (%s) leaves cores idle", cores, cpu.quota->cpus,
                         cpu.quota->source),
         "raise the quota (CPUQuota= of the unit, --cpus of the container), or leave it out"});
  } else {
    findings.push_back({"cpu.quota", Severity::kOk, cores, ""});
  }
  if (cpu.pinned) {
    findings.push_back({"cpu.pinning", Severity::kOk, "workers stay on their cores", ""});
  } else {
    findings.push_back(
        {"cpu.pinning", Severity::kAdvice,
         absl::StrCat("workers are not pinned",
                      cpu.pin_trouble.empty() ? "" : absl::StrCat(": ", cpu.pin_trouble)),
         "allow sched_setaffinity (seccomp, SystemCallFilter=), and a fixed set of CPUs"});
  }
}

void AddMemory(const MemoryFacts& memory, std::vector<Finding>& findings) {
  if (!memory.available.has_value()) {
    findings.push_back({"memory.available", Severity::kWarning,
                        "how much memory is free is not known: /proc/meminfo cannot be read",
                        "mount /proc"});
  } else {
    const bool group = memory.available->source.find("meminfo") == std::string::npos;
    findings.push_back({"memory.available", Severity::kOk,
                        absl::StrCat(FormatBytes(memory.available->available_bytes),
                                     " may be taken (", memory.available->source, ")"),
                        group ? "the control group is the limit: raise MemoryMax= or --memory for "
                                "more"
                              : ""});
  }
  if (memory.huge_pages == "always" || memory.huge_pages == "madvise") {
    findings.push_back({"memory.huge_pages", Severity::kOk,
                        absl::StrCat("transparent huge pages: ", memory.huge_pages), ""});
  } else {
    findings.push_back({"memory.huge_pages", Severity::kAdvice,
                        memory.huge_pages.empty()
                            ? "the kernel does not tell of transparent huge pages"
                            : "transparent huge pages are off: reading weights from RAM is slower",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  if (memory.shared_huge_pages == "never" || memory.shared_huge_pages == "deny") {
    findings.push_back({"memory.shared_huge_pages", Severity::kAdvice,
                        absl::StrCat("huge pages of shared memory: ", memory.shared_huge_pages,
                                     "; hearthd's cache is shared memory"),
                        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"});
  }
}

void AddLimits(const MemoryFacts& memory, bool has_card, std::vector<Finding>& findings) {
  const std::string locked =
      absl::StrCat("locked memory: ", FormatLimitBytes(memory.locked.soft), " (hard limit ",
                   FormatLimitBytes(memory.locked.hard), ")");
  if (memory.locked.hard >= kLockedBytesWanted) {
    findings.push_back({"memory.locked", Severity::kOk, locked, ""});
  } else {
    findings.push_back({"memory.locked", has_card ? Severity::kWarning : Severity::kAdvice, locked,
                        "ulimit -l unlimited, LimitMEMLOCK=infinity of the unit, or a line "
                        "'memlock' in /etc/security/limits.conf"});
  }
  const std::string files = absl::StrCat("open files: ", memory.descriptors.soft, " (hard limit ",
                                         memory.descriptors.hard, ")");
  if (memory.descriptors.hard >= kDescriptorsWanted) {
    findings.push_back({"files.limit", Severity::kOk, files, ""});
  } else {
    findings.push_back({"files.limit", Severity::kWarning,
                        absl::StrCat(files, ": few connections can be open at once"),
                        "ulimit -n 65536, or LimitNOFILE=65536 of the unit"});
  }
}

void AddGpu(const GpuFacts& gpu, std::vector<Finding>& findings) {
  if (!gpu.in_build) {
    findings.push_back({"gpu.driver", Severity::kOk, "this build is for the processor alone", ""});
    return;
  }
  if (gpu.gpus.empty()) {
    findings.push_back({"gpu.driver", Severity::kAdvice, absl::StrCat("no card: ", gpu.no_gpus),
                        "install NVIDIA's driver, or give the container its devices (--gpus all); "
                        "without a card the processor computes all"});
    return;
  }
  const std::string versions = absl::StrCat("driver for CUDA ", CudaVersionName(gpu.driver_version),
                                            ", built with ", CudaVersionName(gpu.runtime_version));
  const bool old = gpu.driver_version < kDriverWanted;
  findings.push_back({"gpu.driver", old ? Severity::kFailure : Severity::kOk, versions,
                      old ? "update NVIDIA's driver" : ""});
  for (const GpuInfo& card : gpu.gpus) {
    const std::string name = absl::StrCat("card ", card.id.value, ": ", card.name, ", sm_", card.sm,
                                          ", ", FormatBytes(card.memory_bytes));
    findings.push_back(
        {"gpu.kernels", card.has_kernels ? Severity::kOk : Severity::kFailure,
         card.has_kernels ? name : absl::StrCat(name, ": no kernels for it"),
         card.has_kernels ? "" : absl::StrCat("build with -DCMAKE_CUDA_ARCHITECTURES=", card.sm)});
  }
  findings.push_back(
      {"gpu.pinning", gpu.pinning.ok() ? Severity::kOk : Severity::kWarning,
       gpu.pinning.ok() ? "RAM can be pinned for the card" : MessageOf(gpu.pinning),
       gpu.pinning.ok() ? "" : "raise the limit of locked memory; see memory.locked"});
}

void AddIo(const IoFacts& io, std::vector<Finding>& findings) {
  if (!io.uring.ok()) {
    findings.push_back({"io.uring", Severity::kAdvice, MessageOf(io.uring),
                        "reads fall back to a pool of threads; allow io_uring_setup (seccomp), or "
                        "set kernel.io_uring_disabled=0"});
  } else if (!io.uring_note.empty()) {
    findings.push_back({"io.uring", Severity::kAdvice, io.uring_note, "see memory.locked"});
  } else {
    findings.push_back({"io.uring", Severity::kOk, "io_uring with registered buffers", ""});
  }
}

bool IsNetwork(std::string_view file_system) {
  constexpr std::array<std::string_view, 6> kNetwork = {"nfs",  "cifs", "smb2",
                                                        "fuse", "9p",   "ceph"};
  return std::find(kNetwork.begin(), kNetwork.end(), file_system) != kNetwork.end();
}

void AddPackFiles(const PackFacts& pack, std::vector<Finding>& findings) {
  if (IsNetwork(pack.file_system)) {
    findings.push_back({"pack.file_system", Severity::kWarning,
                        absl::StrCat("the pack lies on ", pack.file_system,
                                     ": experts that are not in memory come over it"),
                        "copy the pack to a local NVMe drive"});
  } else {
    findings.push_back({"pack.file_system", Severity::kOk, pack.file_system, ""});
  }
  std::string rate;
  if (pack.read_bytes_per_sec > 0) {
    rate = absl::StrFormat(", experts at %.2f GB/s", pack.read_bytes_per_sec * 1e-9);
  }
  if (pack.reads_directly) {
    findings.push_back({"pack.direct", Severity::kOk,
                        absl::StrCat("read past the page cache (O_DIRECT)", rate), ""});
  } else {
    findings.push_back({"pack.direct", Severity::kAdvice,
                        absl::StrCat("read through the page cache: ", pack.not_direct, rate),
                        "a file system with O_DIRECT (ext4, xfs, btrfs) keeps the page cache for "
                        "others"});
  }
}

void AddPack(const PackFacts& pack, const MemoryFacts& memory, std::vector<Finding>& findings) {
  if (!pack.open.ok()) {
    const bool damaged = absl::IsDataLoss(pack.open);
    findings.push_back({"pack.open", damaged ? Severity::kDamage : Severity::kFailure,
                        MessageOf(pack.open),
                        damaged ? "build the pack again, or copy it again from where it was made"
                                : "give the folder that hearth pack build made"});
    return;
  }
  if (!pack.deep.has_value()) {
    findings.push_back({"pack.integrity", Severity::kOk,
                        absl::StrCat(pack.dir, ": sizes, headers and directories are right (",
                                     FormatBytes(pack.bytes), ")"),
                        "--deep reads and checks every byte"});
  } else if (pack.deep->fault_count == 0) {
    findings.push_back({"pack.integrity", Severity::kOk,
                        absl::StrCat(pack.dir, ": all ", FormatBytes(pack.deep->bytes_read),
                                     " are as they were written"),
                        ""});
  } else {
    findings.push_back(
        {"pack.integrity", Severity::kDamage,
         absl::StrCat(pack.dir, ": ", pack.deep->fault_count,
                      " faults, the first: ", pack.deep->first_fault),
         "build the pack again, or copy it again; then look at the drive (smartctl)"});
  }
  AddPackFiles(pack, findings);
  if (!memory.available.has_value()) return;
  const uint64_t free_bytes = memory.available->available_bytes;
  const uint64_t dense_bytes = pack.bytes - std::min(pack.bytes, pack.experts_bytes);
  if (pack.experts_bytes <= free_bytes) {
    findings.push_back(
        {"pack.fits", Severity::kOk,
         absl::StrCat("all experts (", FormatBytes(pack.experts_bytes), ") fit in RAM"), ""});
  } else {
    findings.push_back(
        {"pack.fits", Severity::kAdvice,
         absl::StrCat("experts take ", FormatBytes(pack.experts_bytes), ", RAM has ",
                      FormatBytes(free_bytes), " left beside other files of ",
                      FormatBytes(dense_bytes)),
         "--ram-budget, --mmap-experts or hearthd keep a part of them; hearth plan says what that "
         "gives; a smaller format (hearth pack requantize) fits more"});
  }
}

}  // namespace

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kAdvice:
      return "advice";
    case Severity::kWarning:
      return "warning";
    case Severity::kFailure:
      return "failure";
    case Severity::kDamage:
      return "damage";
  }
  return "";
}

std::vector<Finding> Diagnose(const DoctorFacts& facts) {
  std::vector<Finding> findings;
  AddCpu(facts.cpu, findings);
  AddMemory(facts.memory, findings);
  AddLimits(facts.memory, !facts.gpu.gpus.empty(), findings);
  AddGpu(facts.gpu, findings);
  AddIo(facts.io, findings);
  if (facts.pack.has_value()) AddPack(*facts.pack, facts.memory, findings);
  return findings;
}

Severity Worst(const std::vector<Finding>& findings) {
  Severity worst = Severity::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  return worst;
}

absl::Status VerdictOf(const std::vector<Finding>& findings, Severity fails_from) {
  const auto worst =
      std::max_element(findings.begin(), findings.end(),
                       [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  if (worst == findings.end() || worst->severity < fails_from) return absl::OkStatus();
  const std::string message = absl::StrCat(worst->id, ": ", worst->found);
  if (worst->severity == Severity::kDamage) return absl::DataLossError(message);
  return absl::FailedPreconditionError(message);
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-8s %-24s %s\n", SeverityName(finding.severity), finding.id,
                          finding.found);
    if (!finding.remedy.empty() && finding.severity != Severity::kOk) {
      absl::StrAppendFormat(&text, "%-8s %-24s -> %s\n", "", "", finding.remedy);
    }
  }
  return text;
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"id", finding.id},
                    {"severity", SeverityName(finding.severity)},
                    {"found", finding.found},
                    {"remedy", finding.remedy}});
  }
  const nlohmann::ordered_json all = {{"worst", SeverityName(Worst(findings))},
                                      {"findings", std::move(list)}};
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hearth::cli
