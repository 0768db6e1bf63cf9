// hearth devices: what this machine computes with, and how fast it reads its memories.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/ops/read_probe.h"
#include "runtime/base/cpus.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/base/worker_team.h"
#include "runtime/config/devices_config.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/model_session.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CpuReport {
  std::string isa;                     // that auto chooses
  std::vector<std::string> available;  // best first
  uint32_t allowed_cpus = 0;
  uint32_t threads = 0;
  double read_bytes_per_sec = 0;
};

struct GpuReport {
  GpuInfo info;
  absl::StatusOr<double> read_bytes_per_sec;
};

struct GpusReport {
  std::string reason;  // why there are none
  uint32_t driver_version = 0;
  uint32_t runtime_version = 0;
  std::vector<GpuReport> gpus;
};

absl::StatusOr<CpuReport> ReportCpu(const DevicesConfig& config, Clock& clock) {
  const CpuFeatures have = DetectCpuFeatures();
  CpuReport report;
  report.isa = IsaName(SelectCpuKernels(have).isa);
  for (const CpuKernels& row : AllCpuKernels()) {
    if (Supports(have, row.isa)) report.available.emplace_back(IsaName(row.isa));
  }
  report.allowed_cpus = AllowedCpuCount();
  report.threads = config.threads != 0 ? config.threads : report.allowed_cpus;
  WorkerTeam team(report.threads);
  HEARTH_ASSIGN_OR_RETURN(report.read_bytes_per_sec, MeasureReadRate(team, clock));
  return report;
}

// A machine without a GPU is a result, not an error.
GpusReport ReportGpus() {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (!list.ok()) return {.reason = std::string(list.status().message())};
  GpusReport report = {.reason = list->reason,
                       .driver_version = list->driver_version,
                       .runtime_version = list->runtime_version};
  for (const GpuInfo& gpu : list->gpus) report.gpus.push_back({gpu, MeasureDeviceReadRate(gpu)});
  return report;
}

Json VersionJson(uint32_t version) {
  return version == 0 ? Json(nullptr) : Json(CudaVersionName(version));
}

Json ResultJson(const CpuReport& cpu, const GpusReport& gpus) {
  Json j;
  j["cpu"] = {{"isa", cpu.isa},
              {"isa_available", cpu.available},
              {"allowed_cpus", cpu.allowed_cpus},
              {"threads", cpu.threads},
              {"read_bytes_per_sec", cpu.read_bytes_per_sec}};
  Json list = Json::array();
  for (const GpuReport& gpu : gpus.gpus) {
    const auto& rate = gpu.read_bytes_per_sec;
    list.push_back(
        {{"id", gpu.info.id.value},
         {"name", gpu.info.name},
         {"sm", gpu.info.sm},
         {"memory_bytes", gpu.info.memory_bytes},
         {"l2_bytes", gpu.info.l2_bytes},
         {"multiprocessor_count", gpu.info.limits.multiprocessor_count},
         {"read_bytes_per_sec", rate.ok() ? Json(*rate) : Json(nullptr)},
         {"error", rate.ok() ? Json(nullptr) : Json(std::string(rate.status().message()))}});
  }
  j["gpus"] = list;
  j["no_gpus_reason"] = gpus.reason.empty() ? Json(nullptr) : Json(gpus.reason);
  j["cuda"] = {{"driver", VersionJson(gpus.driver_version)},
               {"runtime", VersionJson(gpus.runtime_version)}};
  return j;
}

void Print(const CpuReport& cpu, const GpusReport& gpus, std::ostream& out) {
  std::string others;
  for (const std::string& isa : cpu.available) {
    if (isa != cpu.isa) others += (others.empty() ? " (also " : ", ") + isa;
  }
  if (!others.empty()) others += ")";
  out << absl::StreamFormat("CPU   %s%s, %d allowed CPUs\n", cpu.isa, others, cpu.allowed_cpus);
  out << absl::StreamFormat("RAM   %.1f GB/s read by %d threads\n", cpu.read_bytes_per_sec * 1e-9,
                            cpu.threads);
  for (const GpuReport& gpu : gpus.gpus) {
    out << absl::StreamFormat("GPU %d %s, sm_%d, %s, %d multiprocessors: ", gpu.info.id.value,
                              gpu.info.name, gpu.info.sm, FormatBytes(gpu.info.memory_bytes),
                              gpu.info.limits.multiprocessor_count);
    if (gpu.read_bytes_per_sec.ok()) {
      out << absl::StreamFormat("%.0f GB/s read\n", *gpu.read_bytes_per_sec * 1e-9);
    } else {
      out << "cannot be measured: " << ToStd(gpu.read_bytes_per_sec.status().message()) << "\n";
    }
  }
  if (gpus.gpus.empty()) {
    out << "GPU   none: " << gpus.reason << "\n";
  } else {
    out << absl::StreamFormat("CUDA  driver %s, runtime %s\n", CudaVersionName(gpus.driver_version),
                              CudaVersionName(gpus.runtime_version));
  }
}

absl::Status Run(const DevicesConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const CpuReport cpu, ReportCpu(config, io.clock));
  const GpusReport gpus = ReportGpus();
  if (io.json) {
    io.results << ResultJson(cpu, gpus).dump() << "\n";
  } else {
    Print(cpu, gpus, io.results);
  }
  return absl::OkStatus();
}

}  // namespace

Command DevicesCommand() {
  return MakeCommand<DevicesConfig>(
      {.name = "devices",
       .summary = "what this machine computes with, and how fast it reads",
       .notes =
           "Measures the memory of the processor and of each GPU: the floor under every speed."},
      Run);
}

}  // namespace hearth::cli
