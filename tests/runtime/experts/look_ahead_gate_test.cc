// Reading ahead goes on while its guesses are good, stops when they are not, and is tried again.
#include "runtime/experts/look_ahead_gate.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(LookAheadGate, StaysOpenWhileHalfOfTheReadsAreUsed) {
  LookAheadGate gate;
  for (uint64_t i = 1; i < 100; ++i) {
    EXPECT_TRUE(gate.Open());
    gate.Judge(i * 10, i * 5);
  }
}

TEST(LookAheadGate, ClosesWhenGuessesAreWrongAndTriesAgain) {
  LookAheadGate gate;
  EXPECT_TRUE(gate.Open());
  gate.Judge(LookAheadGate::kReadsPerJudgement - 1, 0);
  EXPECT_TRUE(gate.Open()) << "too few to judge";
  gate.Judge(LookAheadGate::kReadsPerJudgement, 20);
  for (uint32_t i = 0; i < LookAheadGate::kClosedLayers; ++i) ASSERT_FALSE(gate.Open());
  EXPECT_TRUE(gate.Open());
  // The next sample is judged by itself.
  gate.Judge(2 * LookAheadGate::kReadsPerJudgement, 20 + 40);
  EXPECT_TRUE(gate.Open());
}

}  // namespace
}  // namespace hearth
