// runtime/experts/cuda_card.h in a build without CUDA: none can be created.
#include "gpu_kernels/device/without_cuda.h"
#include "runtime/experts/cuda_card.h"

namespace hearth {

absl::StatusOr<std::unique_ptr<CudaCard>> CudaCard::Create(const Deps&, const CudaCardOptions&) {
  return WithoutCuda("experts on the GPU");
}
absl::StatusOr<uint64_t> CudaCard::BufferBytes(std::span<const ExpertLayout>, const GpuLimits&,
                                               const CudaCardOptions&) {
  return WithoutCuda("experts on the GPU");
}
CudaCard::~CudaCard() = default;
bool CudaCard::Computes(LayerId, const ExpertRows&) const { return false; }
absl::Status CudaCard::Begin(LayerId, const WindowPlan&, const ExpertRows&,
                             std::span<const CardExpert>) {
  return WithoutCuda("experts on the GPU");
}
std::span<const EntryClaim> CudaCard::Claims(LayerId, std::span<const uint32_t>) { return {}; }
void CudaCard::SetSlot(ExpertKey, SlotRef) {}
void CudaCard::SetHostBytes(ExpertKey, std::span<const std::byte>) {}
void CudaCard::SetStreamRule(const StreamRule&) {}
bool CudaCard::Streams(std::span<const std::byte>) const { return false; }
absl::Status CudaCard::Stream(std::span<const StreamedExpert>) {
  return WithoutCuda("experts on the GPU");
}
void CudaCard::Arrive(const CardExpert&) {}
absl::Status CudaCard::Finish() { return WithoutCuda("experts on the GPU"); }
absl::StatusOr<CardTimes> CudaCard::Retire() { return WithoutCuda("experts on the GPU"); }

absl::Status CudaCard::RecordExperts(LayerId, uint32_t, const CardList&) {
  return WithoutCuda("experts on the GPU");
}

}  // namespace hearth
