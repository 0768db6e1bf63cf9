// The names of shapes that the benchmark takes, and what it refuses.
#include "cpu_kernels/bench/bench_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(BenchShapeTest, NamesAndSizes) {
  EXPECT_EQ(BenchShape::Parse("flash-next")->width, 640u);
  EXPECT_EQ(BenchShape::Parse("flashlet")->hidden, 256u);
  const auto own = BenchShape::Parse("1024x96");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->hidden, 1024u);
  EXPECT_EQ(own->width, 96u);
  EXPECT_EQ(own->head_dim, FlashNextShape().head_dim);
}

TEST(BenchShapeTest, AnythingElseIsRefusedByName) {
  for (const char* text : {"", "flash", "x", "64x", "x64", "64x48", "48x64", "0x32", "-32x32",
                           "64x64x64", "131072x32", "64X64"}) {
    const auto shape = BenchShape::Parse(text);
    ASSERT_FALSE(shape.ok()) << text;
    EXPECT_THAT(std::string(shape.status().message()), ::testing::HasSubstr("multiples of 32"));
  }
}

}  // namespace
}  // namespace hearth
