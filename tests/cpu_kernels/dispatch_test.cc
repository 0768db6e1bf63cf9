// The kernel table and the decision for a row: processors are played by their CPUID words.
#include "cpu_kernels/dispatch/cpu_features.h"

#include "gtest/gtest.h"

namespace hearth {
namespace {

// All that the avx512vbmi row needs: FMA, OSXSAVE, AVX, F16C; AVX2, AVX-512 F, DQ, BW, VL; VBMI,
// VBMI2, GFNI, VNNI; all state saved.
CpuidWords ZenFour() {
  return {.leaf1_ecx = (1u << 12) | (1u << 27) | (1u << 28) | (1u << 29),
          .leaf7_ebx = (1u << 5) | (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31),
          .leaf7_ecx = (1u << 1) | (1u << 6) | (1u << 8) | (1u << 11),
          .xcr0 = 0xE7};
}

TEST(CpuFeatures, AllBitsGiveEverything) {
  const CpuFeatures have = FeaturesOf(ZenFour());
  EXPECT_TRUE(have.avx2);
  EXPECT_TRUE(have.avx512);
  EXPECT_TRUE(have.avx512_vbmi);
}

TEST(CpuFeatures, EachBitOfAvx512VbmiIsNeededAndAvx512Stays) {
  for (const uint32_t bit : {1u, 6u, 8u}) {
    CpuidWords words = ZenFour();
    words.leaf7_ecx &= ~(1u << bit);
    EXPECT_TRUE(FeaturesOf(words).avx512) << bit;
    EXPECT_FALSE(FeaturesOf(words).avx512_vbmi) << bit;
  }
}

TEST(CpuFeatures, EachBitOfAvx2IsNeeded) {
  for (const uint32_t bit : {12u, 28u, 29u}) {
    CpuidWords words = ZenFour();
    words.leaf1_ecx &= ~(1u << bit);
    EXPECT_FALSE(FeaturesOf(words).avx2) << bit;
    EXPECT_FALSE(FeaturesOf(words).avx512) << bit;
  }
  CpuidWords words = ZenFour();
  words.leaf7_ebx &= ~(1u << 5);
  EXPECT_FALSE(FeaturesOf(words).avx2);
}

TEST(CpuFeatures, EachBitOfAvx512IsNeededAndAvx2Stays) {
  for (const uint32_t bit : {16u, 17u, 30u, 31u}) {
    CpuidWords words = ZenFour();
    words.leaf7_ebx &= ~(1u << bit);
    EXPECT_TRUE(FeaturesOf(words).avx2) << bit;
    EXPECT_FALSE(FeaturesOf(words).avx512) << bit;
  }
  CpuidWords words = ZenFour();
  words.leaf7_ecx &= ~(1u << 11);
  EXPECT_TRUE(FeaturesOf(words).avx2);
  EXPECT_FALSE(FeaturesOf(words).avx512);
  EXPECT_FALSE(FeaturesOf(words).avx512_vbmi);
}

TEST(CpuFeatures, SystemMustSaveTheRegisters) {
  CpuidWords words = ZenFour();
  words.xcr0 = 0x7;  // no mask and zmm state
  EXPECT_TRUE(FeaturesOf(words).avx2);
  EXPECT_FALSE(FeaturesOf(words).avx512);
  words.xcr0 = 0x3;  // no ymm state
  EXPECT_FALSE(FeaturesOf(words).avx2);
  EXPECT_FALSE(FeaturesOf({}).avx2);
}

TEST(CpuKernelTable, BestSupportedRowIsChosen) {
  EXPECT_EQ(SelectCpuKernels({.avx2 = true, .avx512 = true, .avx512_vbmi = true}).isa,
            Isa::kAvx512Vbmi);
  EXPECT_EQ(SelectCpuKernels({.avx2 = true, .avx512 = true}).isa, Isa::kAvx512);
  EXPECT_EQ(SelectCpuKernels({.avx2 = true}).isa, Isa::kAvx2);
  EXPECT_EQ(SelectCpuKernels({}).isa, Isa::kScalar);
}

TEST(CpuKernelTable, RowsAreFoundByNameOnceEachAndScalarIsLast) {
  for (const CpuKernels& row : AllCpuKernels()) {
    EXPECT_EQ(FindCpuKernels(IsaName(row.isa)), &row);
  }
  EXPECT_EQ(AllCpuKernels().back().isa, Isa::kScalar);
  EXPECT_EQ(FindCpuKernels("sse2"), nullptr);
  EXPECT_EQ(FindCpuKernels(""), nullptr);
}

}  // namespace
}  // namespace hearth
