// GdnRecurrent on one register of sixteen lanes. The functions are those of ops/gdn_inl.h.
#include "cpu_kernels/avx512/kernels.h"
#include "cpu_kernels/avx512/vec16_inl.h"

// The shared bodies take their vector type from the header above.
#include "cpu_kernels/ops/gdn_inl.h"
