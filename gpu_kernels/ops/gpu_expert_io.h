// Where a card's routed experts read their rows and leave their outputs: what the backend of the
// dense path hands to whoever computes experts out of VRAM slots. Addresses stay the same for the
// life of the backend; the contents are those of the pass at hand.
#pragma once

#include <cstdint>

#include "gpu_kernels/device/stream.h"

namespace hearth {

struct GpuExpertIo {
  // Work of a layer's experts goes here: behind the router, before the combine, in order.
  CudaStreamView stream;
  // Rows of the pass as QuantizedRows (cpu_kernels/ops/activation.h): what NVFP4 experts read.
  const int8_t* q = nullptr;       // device, (rows, hidden rounded up to 32)
  const float* scale = nullptr;    // device, (rows, blocks of 32)
  const int32_t* sum16 = nullptr;  // device, (rows, 2 * blocks)
  // The same rows rotated and quantised, as XtRows: what XT experts read. Null without XT layers.
  const int8_t* xt_q = nullptr;     // device, (rows, hidden)
  const float* xt_scale = nullptr;  // device, (rows)
  const int32_t* xt_sum = nullptr;  // device, (rows)
  // Output of (row, rank), unweighted: row (row * ranks + rank), y_stride floats apart.
  float* y = nullptr;  // device, (rows * ranks, hidden)
  uint32_t y_stride = 0;
  // HOST address of (rows * ranks) bytes that the combine reads (pinned and mapped): 1: the output
  // is in `y`; 0: the host computed it. Written by the host before the combine is let go.
  uint8_t* on_card = nullptr;
};

}  // namespace hearth
