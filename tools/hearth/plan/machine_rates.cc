// The probes that other commands use as well, put together.
#include "tools/hearth/plan/machine_rates.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/read_probe.h"
#include "runtime/base/file.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/plan/drive_rate.h"
#include "tools/hearth/scratch_folder.h"
#include "tools/hearth/window_bench.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {
namespace {

void MeasureCard(PlanReport& report) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (!list.ok() || list->gpus.empty()) {
    report.card = list.ok() ? list->reason : std::string(list.status().message());
    return;
  }
  const GpuInfo& gpu = *std::max_element(
      list->gpus.begin(), list->gpus.end(),
      [](const GpuInfo& a, const GpuInfo& b) { return a.memory_bytes < b.memory_bytes; });
  report.card = gpu.name;
  const absl::StatusOr<double> card = MeasureDeviceReadRate(gpu);
  const absl::StatusOr<double> link = MeasureLinkRate(gpu);
  if (!card.ok() || !link.ok()) {
    report.card = absl::StrCat(
        gpu.name, " cannot be measured: ", (card.ok() ? link : card).status().message());
    return;
  }
  report.machine.card_bytes = gpu.memory_bytes;
  report.machine.rates.card = *card;
  report.machine.rates.link = *link;
}

// A file that takes as long to read as one of experts does.
absl::StatusOr<std::string> WriteScratch(const ScratchFolder& folder) {
  constexpr uint64_t kBytes = 256_MiB;
  constexpr uint64_t kPieceBytes = 4_MiB;
  const std::string path = JoinPath(folder.path(), "drive");
  HEARTH_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Create(path));
  std::vector<uint64_t> words(kPieceBytes / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) words[i] = SplitMix64(i);  // no drive can shrink it
  for (uint64_t done = 0; done < kBytes; done += kPieceBytes) {
    words[0] = done;
    HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span<const uint64_t>(words))));
  }
  HEARTH_RETURN_IF_ERROR(file.Finish());
  return path;
}

absl::StatusOr<DriveRate> DriveRateOf(const MachineWish& wish, Clock& clock) {
  struct stat facts = {};
  if (::stat(wish.drive.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    return MeasureDriveRate({.path = wish.drive, .read_bytes = wish.drive_read_bytes}, clock);
  }
  HEARTH_ASSIGN_OR_RETURN(const ScratchFolder folder,
                          ScratchFolder::Create(wish.drive, "hearth-plan"));
  HEARTH_ASSIGN_OR_RETURN(const std::string path, WriteScratch(folder));
  return MeasureDriveRate({.path = path, .read_bytes = wish.drive_read_bytes}, clock);
}

void MeasureDrive(const MachineWish& wish, Clock& clock, PlanReport& report) {
  if (wish.drive.empty()) {
    report.drive = "not measured: give --pack, or --drive and a folder that lies on it";
    return;
  }
  const absl::StatusOr<DriveRate> rate = DriveRateOf(wish, clock);
  if (!rate.ok()) {
    report.drive = absl::StrCat("not measured: ", rate.status().message());
    return;
  }
  report.machine.rates.drive = rate->bytes_per_sec;
  report.drive = absl::StrFormat("%.2f GB/s in reads of one expert%s", rate->bytes_per_sec * 1e-9,
                                 rate->direct ? "" : ", through the page cache: it may be slower");
  report.notes.insert(report.notes.end(), rate->notes.begin(), rate->notes.end());
}

}  // namespace

absl::Status MeasureMachine(const MachineWish& wish, const CommandIo& io, PlanReport& report) {
  HEARTH_ASSIGN_OR_RETURN(const Workers workers,
                          Workers::Start(wish.threads, wish.cpus, io.allowed_cpus));
  HEARTH_ASSIGN_OR_RETURN(const MemoryLimit memory, AvailableMemory());
  report.machine.ram_bytes = std::min(memory.available_bytes, wish.ram_budget.value_or(UINT64_MAX));
  HEARTH_ASSIGN_OR_RETURN(report.machine.rates.dram, MeasureReadRate(*workers.team, io.clock));
  if (wish.card) {
    MeasureCard(report);
  } else {
    report.card = "left out (--device cpu)";
  }
  MeasureDrive(wish, io.clock, report);
  return absl::OkStatus();
}

PlanModel PlanModelOfPack(const Pack& pack) {
  const ModelGeometry& geometry = pack.manifest.geometry;
  const ExpertLayout& first = pack.experts.layout(LayerId(0));
  const absl::StatusOr<PlanModel> named = PlanModelOf(geometry, first.format, first.xt_bits);
  PlanModel model = named.ok() ? *named : PlanModel();
  uint64_t bytes = 0;
  bool mixed = false;
  for (uint32_t layer = 0; layer < geometry.layer_count(); ++layer) {
    bytes += pack.experts.layout(LayerId(layer)).stride_bytes();
    mixed = mixed || !(pack.experts.layout(LayerId(layer)) == first);
  }
  model.expert_bytes = bytes / std::max(geometry.layer_count(), 1u);
  if (mixed) model.quantisation += "+";  // layers of several formats
  model.dense_bytes = 0;
  model.dense_token_bytes = 0;
  for (const TensorInfo& tensor : pack.dense.tensors()) {
    model.dense_bytes += tensor.bytes;
    if (tensor.name.find("embed_tokens") == std::string::npos) {
      model.dense_token_bytes += tensor.bytes;
    }
  }
  return model;
}

}  // namespace hearth::cli
