// What CPUID and XGETBV say, and what follows from it. The decision is a pure function, so that
// tests can play other processors.
#pragma once

#include <cstdint>

#include "cpu_kernels/dispatch/cpu_kernels.h"

namespace hearth {

// Registers of the CPUID leaves that matter; zero where the processor has no such leaf.
struct CpuidWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint64_t xcr0 = 0;  // register state that the operating system saves; zero without OSXSAVE
};

CpuidWords ReadCpuid();
CpuFeatures FeaturesOf(const CpuidWords& words);

}  // namespace hearth
