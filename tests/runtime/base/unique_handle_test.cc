// The owner of a handle closes it exactly once, whatever it is moved through.
#include "runtime/base/unique_handle.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Handle {
  std::vector<int>* closed;
  int number;
  bool operator==(const Handle&) const = default;
};
struct RecordingTraits {
  using Type = Handle;
  static constexpr Type kInvalid = {nullptr, -1};
  static void Close(Type h) { h.closed->push_back(h.number); }
};
using Recorded = UniqueHandle<RecordingTraits>;

TEST(UniqueHandle, ClosesOnceAtTheEndOfItsScope) {
  std::vector<int> closed;
  {
    const Recorded a({&closed, 1});
    EXPECT_TRUE(a.valid());
    EXPECT_THAT(closed, IsEmpty());
  }
  EXPECT_THAT(closed, ElementsAre(1));
}

TEST(UniqueHandle, MovesWithoutClosing) {
  std::vector<int> closed;
  {
    Recorded a({&closed, 1});
    Recorded b(std::move(a));
    EXPECT_FALSE(a.valid());
    EXPECT_EQ(b.get().number, 1);
  }
  EXPECT_THAT(closed, ElementsAre(1));
}

TEST(UniqueHandle, AssignmentClosesWhatWasHeld) {
  std::vector<int> closed;
  {
    Recorded a({&closed, 1});
    a = Recorded({&closed, 2});
    EXPECT_THAT(closed, ElementsAre(1));
    a = Recorded();
    EXPECT_THAT(closed, ElementsAre(1, 2));
    EXPECT_FALSE(a.valid());
  }
  EXPECT_THAT(closed, ElementsAre(1, 2));
}

TEST(UniqueHandle, AnEmptyOneClosesNothing) {
  const Recorded empty;
  EXPECT_FALSE(empty.valid());
}

}  // namespace
}  // namespace hearth
