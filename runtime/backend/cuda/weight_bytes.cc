// How much of a card the dense weights of a pack take; with CUDA and without.
#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kCardAlignBytes = 256;  // as in device_weights.cc

}  // namespace

uint64_t CudaWeightBytes(const Pack& pack) {
  uint64_t bytes = 0;
  const auto add = [&bytes](const TensorFile& file) {
    for (const TensorInfo& info : file.tensors()) {
      if (info.name != "embed_tokens") bytes += AlignUp(info.bytes, kCardAlignBytes);
    }
  };
  add(pack.dense);
  if (pack.mtp) add(*pack.mtp);
  return bytes;
}

}  // namespace hearth
