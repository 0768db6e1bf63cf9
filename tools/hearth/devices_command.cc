// hearth devices: what this machine computes with, and how fast it reads its memories.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/ops/read_probe.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/devices_config.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CpuReport {
  std::string isa;                     // that auto chooses
  std::vector<std::string> available;  // best first
  Workers workers;
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

absl::StatusOr<CpuReport> ReportCpu(const DevicesConfig& config, const CommandIo& io) {
  const CpuFeatures have = DetectCpuFeatures();
  CpuReport report;
  report.isa = IsaName(SelectCpuKernels(have).isa);
  for (const CpuKernels& row : AllCpuKernels()) {
    if (Supports(have, row.isa)) report.available.emplace_back(IsaName(row.isa));
  }
  HEARTH_ASSIGN_OR_RETURN(report.workers,
                          Workers::Start(config.threads, config.cpus, io.allowed_cpus));
  HEARTH_ASSIGN_OR_RETURN(report.read_bytes_per_sec,
                          MeasureReadRate(*report.workers.team, io.clock));
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

Json WorkersJson(const Workers& workers) {
  const WorkerPlan& plan = workers.plan;
  Json list = Json::array();
  for (const PlannedWorker& worker : plan.workers) {
    const bool known = worker.cpu.has_value();
    list.push_back({{"cpu", known ? Json(*worker.cpu) : Json(nullptr)},
                    {"core_tier", worker.tier},
                    {"numa_node", known ? Json(plan.numa_nodes[worker.node]) : Json(nullptr)}});
  }
  const auto text = [](const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); };
  return {{"pinned", workers.binding != nullptr && workers.binding->pinned()},
          {"reason", plan.reason},
          {"warning", text(workers.warning)},
          {"quota_cpus", workers.quota ? Json(workers.quota->cpus) : Json(nullptr)},
          {"quota_source", workers.quota ? Json(workers.quota->source) : Json(nullptr)},
          {"list", std::move(list)}};
}

Json ResultJson(const CpuReport& cpu, const GpusReport& gpus) {
  Json j;
  j["cpu"] = {{"isa", cpu.isa},
              {"isa_available", cpu.available},
              {"allowed_cpus", cpu.workers.plan.allowed_cpu_count},
              {"physical_cores", cpu.workers.plan.core_count},
              {"threads", cpu.workers.team->worker_count()},
              {"workers", WorkersJson(cpu.workers)},
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
  const WorkerPlan& plan = cpu.workers.plan;
  out << absl::StreamFormat("CPU   %s%s, %d allowed CPUs on %d physical cores\n", cpu.isa, others,
                            plan.allowed_cpu_count, plan.core_count);
  out << "POOL  " << DescribePlan(plan) << "\n";
  if (!cpu.workers.warning.empty()) out << "      not pinned: " << cpu.workers.warning << "\n";
  out << absl::StreamFormat("RAM   %.1f GB/s read by them\n", cpu.read_bytes_per_sec * 1e-9);
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
  HEARTH_ASSIGN_OR_RETURN(const CpuReport cpu, ReportCpu(config, io));
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
