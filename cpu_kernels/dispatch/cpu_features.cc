#include "cpu_kernels/dispatch/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hearth {
namespace {

constexpr bool Bit(uint64_t word, uint32_t index) { return ((word >> index) & 1) != 0; }

// XCR0: bits 1 and 2 are the xmm and ymm state, bits 5 to 7 the mask and zmm state.
constexpr uint64_t kYmmState = 0x6;
constexpr uint64_t kZmmState = 0xE6;

}  // namespace

CpuidWords ReadCpuid() {
  CpuidWords words;
#if defined(__x86_64__)
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf1_ecx = ecx;
  if (Bit(ecx, 27)) {  // OSXSAVE: XGETBV may be executed
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = (uint64_t{high} << 32) | low;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
  }
#endif
  return words;
}

CpuFeatures FeaturesOf(const CpuidWords& words) {
  const bool fma = Bit(words.leaf1_ecx, 12);
  const bool avx = Bit(words.leaf1_ecx, 28);
  const bool f16c = Bit(words.leaf1_ecx, 29);
  const bool avx2 = Bit(words.leaf7_ebx, 5);
  const bool avx512 = Bit(words.leaf7_ebx, 16) &&  // F
                      Bit(words.leaf7_ebx, 17) &&  // DQ
                      Bit(words.leaf7_ebx, 30) &&  // BW
                      Bit(words.leaf7_ebx, 31) &&  // VL
                      Bit(words.leaf7_ecx, 11);    // VNNI
  const bool vbmi = Bit(words.leaf7_ecx, 1) &&     // VBMI
                    Bit(words.leaf7_ecx, 6) &&     // VBMI2
                    Bit(words.leaf7_ecx, 8);       // GFNI
  CpuFeatures have;
  have.avx2 = avx && avx2 && fma && f16c && (words.xcr0 & kYmmState) == kYmmState;
  have.avx512 = have.avx2 && avx512 && (words.xcr0 & kZmmState) == kZmmState;
  have.avx512_vbmi = have.avx512 && vbmi;
  return have;
}

CpuFeatures DetectCpuFeatures() { return FeaturesOf(ReadCpuid()); }

}  // namespace hearth
