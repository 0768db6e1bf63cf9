// Ids do not turn into each other or into integers.
#include "runtime/base/ids.h"

#include <type_traits>

#include <gtest/gtest.h>

namespace hearth {
namespace {

static_assert(!std::is_convertible_v<LayerId, ExpertId>);
static_assert(!std::is_convertible_v<LayerId, uint32_t>);
static_assert(!std::is_convertible_v<uint32_t, LayerId>);
static_assert(sizeof(LayerId) == 4);

TEST(Id, IsInvalidUntilItIsGivenAValue) {
  EXPECT_FALSE(LayerId().valid());
  EXPECT_TRUE(LayerId(0).valid());
}

TEST(ExpertKey, OrdersByLayerThenExpert) {
  const ExpertKey a{LayerId(1), ExpertId(9)};
  const ExpertKey b{LayerId(2), ExpertId(0)};
  EXPECT_LT(a, b);
  EXPECT_LT(b, (ExpertKey{LayerId(2), ExpertId(1)}));
  EXPECT_EQ(a, (ExpertKey{LayerId(1), ExpertId(9)}));
}

}  // namespace
}  // namespace hearth
