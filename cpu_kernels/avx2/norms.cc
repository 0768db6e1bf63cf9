// RmsNorm and L2Norm on two registers of eight lanes. The functions are those of ops/norms_inl.h.
#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx2/vec16_inl.h"

// The shared bodies take their vector type from the header above.
#include "cpu_kernels/ops/norms_inl.h"
