// Where an operation leaves a row as int8, beside or instead of fp32.
#pragma once

#include <cstdint>

namespace hearth {

// Device memory, laid out as QuantizedRows (cpu_kernels/ops/activation.h) of the fp32 row that the
// operation computes: canonical quantisation, blocks of 32 values.
struct QuantizedOut {
  int8_t* q = nullptr;       // (rows, 32 * B), 16-byte aligned; null: not wanted
  float* scale = nullptr;    // (rows, B)
  int32_t* sum16 = nullptr;  // (rows, 2 * B), 8-byte aligned
};

}  // namespace hearth
