// Each part by the means that the program itself will use.
#include "tools/hearth/doctor/read_facts.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"

#include "cache/io/direct_file.h"
#include "cache/io/process_limits.h"
#include "cache/io/uring_ring.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "pack/reader/pack.h"
#include "pack/reader/verify.h"
#include "runtime/base/control_groups.h"
#include "runtime/base/file.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_handle.h"
#include "runtime/base/units.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/plan/drive_rate.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kPinProbeBytes = 16_MiB;
constexpr uint64_t kRingProbeBytes = 16_MiB;
constexpr uint64_t kExpertAlign = 4096;

// "madvise" of "always [madvise] never".
std::string ChosenOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadKernelFile(path);
  if (!text.ok()) return "";
  const size_t open = text->find('[');
  const size_t close = text->find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return text->substr(open + 1, close - open - 1);
}

absl::StatusOr<CpuFacts> ReadCpu(const CommandIo& io) {
  CpuFacts facts;
  facts.isa = IsaName(SelectCpuKernels(DetectCpuFeatures()).isa);
  HEARTH_ASSIGN_OR_RETURN(const Workers workers, Workers::Start(0, "", io.allowed_cpus));
  facts.allowed_cpu_count = workers.plan.allowed_cpu_count;
  facts.core_count = workers.plan.core_count;
  facts.worker_count = workers.team->worker_count();
  facts.quota = workers.quota;
  facts.pinned = workers.binding != nullptr && workers.binding->pinned();
  facts.pin_trouble = workers.warning.empty() ? workers.plan.reason : workers.warning;
  const absl::StatusOr<double> rate = MeasureReadRate(*workers.team, io.clock);
  if (rate.ok()) facts.read_bytes_per_sec = *rate;
  return facts;
}

MemoryFacts ReadMemory(const std::string& root) {
  MemoryFacts facts;
  const absl::StatusOr<MemoryLimit> available = AvailableMemory(root);
  if (available.ok()) facts.available = *available;
  const std::string folder = JoinPath(root, "sys/kernel/mm/transparent_hugepage");
  facts.huge_pages = ChosenOf(JoinPath(folder, "enabled"));
  facts.shared_huge_pages = ChosenOf(JoinPath(folder, "shmem_enabled"));
  facts.locked = LockedMemoryLimit();
  facts.descriptors = DescriptorLimit();
  return facts;
}

GpuFacts ReadGpu() {
  GpuFacts facts;
  const absl::StatusOr<GpuList> list = ListGpus();
  facts.in_build = !absl::IsUnimplemented(list.status());
  if (!list.ok()) {
    facts.no_gpus = std::string(list.status().message());
    return facts;
  }
  facts.no_gpus = list->reason;
  facts.driver_version = list->driver_version;
  facts.runtime_version = list->runtime_version;
  facts.gpus = list->gpus;
  if (!facts.gpus.empty()) {
    facts.pinning = PinnedBuffer::Create(facts.gpus.front().id, kPinProbeBytes).status();
  }
  return facts;
}

IoFacts ReadIo() {
  IoFacts facts;
  const absl::StatusOr<AnonymousMapping> memory = AnonymousMapping::Create(kRingProbeBytes);
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!memory.ok() || !file.valid()) {
    facts.uring = absl::UnknownError("io_uring could not be tried");
    return facts;
  }
  const absl::StatusOr<std::unique_ptr<UringRing>> ring =
      UringRing::Create({.entry_count = 8, .fd = file.get(), .buffers = memory->data()});
  facts.uring = ring.status();
  if (ring.ok()) facts.uring_note = (*ring)->note();
  return facts;
}

std::string FileSystemOf(const std::string& dir) {
  struct Known {
    int64_t magic;  // statfs(2)
    std::string_view name;
  };
  constexpr std::array<Known, 13> kKnown = {{{0xEF53, "ext4"},
                                             {0x58465342, "xfs"},
                                             {0x9123683E, "btrfs"},
                                             {0x01021994, "tmpfs"},
                                             {0x794C7630, "overlay"},
                                             {0x2FC12FC1, "zfs"},
                                             {0xF2F52010, "f2fs"},
                                             {0x6969, "nfs"},
                                             {0xFF534D42, "cifs"},
                                             {0xFE534D42, "smb2"},
                                             {0x65735546, "fuse"},
                                             {0x01021997, "9p"},
                                             {0x00C36400, "ceph"}}};
  struct statfs facts = {};
  if (::statfs(dir.c_str(), &facts) != 0) return "not known";
  const int64_t magic = static_cast<int64_t>(static_cast<uint32_t>(facts.f_type));
  for (const Known& known : kKnown) {
    if (known.magic == magic) return std::string(known.name);
  }
  return absl::StrFormat("0x%x", magic);
}

PackFacts::Deep ReadDeep(const std::string& dir, const CommandIo& io) {
  Progress line(io, ProgressOptions{.label = "verify", .total = 0});
  const absl::StatusOr<VerifyReport> report =
      VerifyPack(dir, [&](const VerifyProgress& p) { line.Update(p.done_bytes); });
  if (!report.ok()) {
    return {.fault_count = 1, .first_fault = std::string(report.status().message())};
  }
  PackFacts::Deep deep = {.bytes_read = report->bytes_read, .fault_count = report->fault_count};
  if (!report->faults.empty()) {
    const VerifyFault& fault = report->faults.front();
    deep.first_fault = fault.file + " " + fault.where + ": " + fault.what;
  }
  return deep;
}

PackFacts ReadPack(const FactsWish& wish, const CommandIo& io) {
  PackFacts facts = {.dir = wish.pack};
  const absl::StatusOr<Pack> pack = Pack::Open(wish.pack);
  facts.open = pack.status();
  if (wish.deep) facts.deep = ReadDeep(wish.pack, io);
  if (!pack.ok()) return facts;
  for (const PackFile& file : pack->manifest.files) facts.bytes += file.bytes;
  facts.experts_bytes = pack->experts.file().bytes();
  facts.file_system = FileSystemOf(wish.pack);
  const std::string& path = pack->experts.file().path();
  const auto direct = DirectFile::Open(path, /*want_direct=*/true, kExpertAlign);
  facts.reads_directly = direct.ok() && (*direct)->direct();
  if (!facts.reads_directly) {
    facts.not_direct = direct.ok() ? (*direct)->Note() : std::string(direct.status().message());
  }
  const absl::StatusOr<DriveRate> rate = MeasureDriveRate(
      {.path = path, .read_bytes = pack->experts.layout(LayerId(0)).stride_bytes()}, io.clock);
  if (rate.ok()) facts.read_bytes_per_sec = rate->bytes_per_sec;
  return facts;
}

}  // namespace

absl::StatusOr<DoctorFacts> ReadDoctorFacts(const FactsWish& wish, const CommandIo& io) {
  DoctorFacts facts;
  HEARTH_ASSIGN_OR_RETURN(facts.cpu, ReadCpu(io));
  facts.memory = ReadMemory(wish.root);
  facts.gpu = ReadGpu();
  facts.io = ReadIo();
  if (!wish.pack.empty()) facts.pack = ReadPack(wish, io);
  return facts;
}

}  // namespace hearth::cli
