#include "tools/hearth/xt_gpu_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "pack/format/xt_search.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// Enough streams to keep every multiprocessor busy for sixteen rounds, so that the last, uneven
// one costs little.
constexpr uint32_t kRoundsOfStreams = 16;

uint32_t MatricesAtOnce(const GpuInfo& gpu, const XtShape& shape) {
  const uint32_t streams = shape.group_count() * kXtLaneCount;
  return kRoundsOfStreams * std::max(1u, gpu.limits.multiprocessor_count) / streams + 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<XtGpuDevice>> XtGpuDevice::Create() {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) {
    return absl::UnavailableError(absl::StrCat("no GPU to encode on: ", list.reason));
  }
  return std::unique_ptr<XtGpuDevice>(new XtGpuDevice(list.gpus[0]));
}

bool XtGpuDevice::Takes(const XtShape& shape) const {
  return shape.band_count() / std::max(1u, shape.group_count()) * kXtStepsPerChunk >= kXtShortSteps;
}

absl::Status XtGpuDevice::Encode(const XtShape& shape, std::span<const Job> jobs) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<XtGpuEncoder>& encoder = encoders_[{shape.rows, shape.cols, shape.bits}];
  const uint32_t at_once = MatricesAtOnce(gpu_, shape);
  if (encoder == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(encoder, XtGpuEncoder::Create(gpu_, shape, at_once));
  }
  std::vector<XtGpuEncoder::Job> part;
  for (size_t first = 0; first < jobs.size(); first += at_once) {
    part.clear();
    for (const Job& job : jobs.subspan(first, std::min<size_t>(at_once, jobs.size() - first))) {
      part.push_back({.targets = job.targets,
                      .feedback = job.feedback,
                      .codes = job.codes,
                      .row_errors = job.row_errors});
    }
    HEARTH_RETURN_IF_ERROR(encoder->Encode(part));
  }
  return absl::OkStatus();
}

}  // namespace hearth
