// Products of one set of activation rows with one or more dense matrices, spread over the worker
// team.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "pack/format/matrix_layout.h"
#include "runtime/base/worker_team.h"

namespace hearth {

// Activation rows in fp32, with room for their quantised form; quantised at most once, when a Q8
// matrix first asks for it.
struct ActivationRows {
  const float* x = nullptr;  // (rows, cols), row stride x_stride
  uint32_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

// Quantisation buffers for (rows, cols): see QuantizedRows for the shapes.
struct QuantizeBuffers {
  std::span<int8_t> q;
  std::span<float> scale;
  std::span<int32_t> sum16;
};

class Projector {
 public:
  struct Target {
    const MatrixView* w;
    float* y;  // (rows, >= w->rows), row stride y_stride
    uint32_t y_stride;
  };

  Projector(const CpuKernels& kernels, WorkerTeam& team) : kernels_(kernels), team_(team) {}

  // Quantises the rows into `buffers`.
  QuantizedRows Quantize(const ActivationRows& x, const QuantizeBuffers& buffers) const;

  // y = w x for every target, in one fork-join. Quantises first if any target is Q8 and `quantized`
  // is null; pass the result of Quantize() to share it.
  void Run(const ActivationRows& x, const QuantizeBuffers& buffers,
           std::initializer_list<Target> targets, const QuantizedRows* quantized = nullptr) const;

 private:
  void RunUnits(const ActivationRows& x, const QuantizedRows& xq, const Target& target,
                uint32_t unit_begin, uint32_t unit_end) const;

  const CpuKernels& kernels_;
  WorkerTeam& team_;
};

}  // namespace hearth
