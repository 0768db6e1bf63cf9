#include "runtime/engine/device_choice.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

absl::Status CheckCard(const GpuInfo& gpu, std::string_view architectures,
                       const DeviceNeeds& needs) {
  if (gpu.sm < kOldestSm) {
    return absl::FailedPreconditionError(
        absl::StrCat(gpu.name, " has compute capability ", gpu.sm / 10, ".", gpu.sm % 10,
                     ": Hearth's kernels need ", kOldestSm / 10, ".", kOldestSm % 10, " or newer"));
  }
  if (!gpu.has_kernels) {
    return absl::FailedPreconditionError(absl::StrCat(
        gpu.name, " is sm_", gpu.sm, ": this build has kernels for ", ToAbsl(architectures),
        " only; configure it anew on this machine, or with -DCMAKE_CUDA_ARCHITECTURES=", gpu.sm));
  }
  if (gpu.memory_bytes < needs.card_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(gpu.name, " has ", FormatBytes(gpu.memory_bytes), " of memory: this model's ",
                     "dense part with one sequence takes ", FormatBytes(needs.card_bytes),
                     "; --kv int8 takes less"));
  }
  return absl::OkStatus();
}

// The card that was asked for, or the one with most memory.
absl::StatusOr<const GpuInfo*> PickCard(const DeviceSetting& request, const GpuList& list) {
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  if (request.index) {
    if (*request.index < list.gpus.size()) return &list.gpus[*request.index];
    return absl::NotFoundError(absl::StrCat("there is no GPU ", *request.index,
                                            ": this machine has ", list.gpus.size(),
                                            ", counted from 0"));
  }
  const GpuInfo* best = &list.gpus.front();
  for (const GpuInfo& gpu : list.gpus) {
    if (gpu.memory_bytes > best->memory_bytes) best = &gpu;
  }
  return best;
}

absl::StatusOr<DeviceChoice> ChooseCard(const DeviceSetting& request,
                                        const absl::StatusOr<GpuList>& gpus,
                                        const DeviceNeeds& needs) {
  if (needs.arithmetic == Arithmetic::kReference) {
    return absl::FailedPreconditionError("reference arithmetic runs on the CPU only");
  }
  HEARTH_RETURN_IF_ERROR(gpus.status());
  HEARTH_ASSIGN_OR_RETURN(const GpuInfo* gpu, PickCard(request, *gpus));
  HEARTH_RETURN_IF_ERROR(CheckCard(*gpu, gpus->architectures, needs));
  return DeviceChoice{.gpu = *gpu,
                      .reason = absl::StrCat("GPU ", gpu->id.value, ", ", gpu->name, ", ",
                                             FormatBytes(gpu->memory_bytes))};
}

}  // namespace

absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceSetting& request,
                                          const absl::StatusOr<GpuList>& gpus,
                                          const DeviceNeeds& needs) {
  if (request.kind == DeviceSetting::Kind::kCpu) {
    return DeviceChoice{.gpu = std::nullopt, .reason = "the CPU, as asked"};
  }
  absl::StatusOr<DeviceChoice> card = ChooseCard(request, gpus, needs);
  if (card.ok()) return card;
  if (request.kind == DeviceSetting::Kind::kCuda) return Annotate(card.status(), "device");
  return DeviceChoice{.gpu = std::nullopt,
                      .reason = absl::StrCat("the CPU: ", card.status().message())};
}

}  // namespace hearth
