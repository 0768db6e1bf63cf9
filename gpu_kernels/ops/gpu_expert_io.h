// Where a card's routed experts read their rows and leave their outputs: what the backend of the
// dense path hands to whoever computes experts out of VRAM slots.
#pragma once

#include <cstdint>
#include <span>

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/xt.h"
#include "gpu_kernels/device/stream.h"

namespace hearth {

// What expert kernels on the backend's card read and write for the layer at hand: work enqueued on
// `stream` between FirstHalf and SecondHalf finds u there and is done when the layer is combined.
// Device addresses, the same for every pass; the bits of u are those of ExpertInput.
struct GpuExpertIo {
  CudaStreamView stream;
  QuantizedRows u;          // (rows max, hidden)
  XtRows u_rotated;         // q == nullptr when no layer's experts are in XT
  float* output = nullptr;  // (rows max * ranks, hidden): entry row * ranks + rank, unweighted
  // Host memory, a byte for each entry, zeroed by FirstHalf: 1 when the card writes the entry, so
  // that SecondHalf takes it from `output` and not from what it is handed. The caller sets them.
  std::span<uint8_t> on_card;
};

}  // namespace hearth
