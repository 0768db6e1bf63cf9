// The queue's order, and who gets the rows of a window.
#include "runtime/serve/request_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "runtime/serve/window_fill.h"

namespace hearth {
namespace {

std::unique_ptr<ServedRequest> Request(CompletionId id, Priority priority, int64_t submitted_ns) {
  CompletionRequest request{.prompt = {1}};
  request.priority = priority;
  return std::make_unique<ServedRequest>(id, std::move(request), nullptr, RequestNeed{},
                                         submitted_ns, INT64_MAX);
}

TEST(RequestQueue, PriorityThenArrival) {
  RequestQueue queue(4, 100);
  EXPECT_EQ(queue.Next(0), nullptr);
  queue.Push(Request(1, Priority::kNormal, 0));
  queue.Push(Request(2, Priority::kHigh, 1));
  queue.Push(Request(3, Priority::kHigh, 2));
  queue.Push(Request(4, Priority::kLow, 3));
  EXPECT_TRUE(queue.full());
  for (const CompletionId id : {2u, 3u, 1u, 4u}) {
    const ServedRequest* const next = queue.Next(5);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->id(), id);
    EXPECT_EQ(queue.Take(next)->id(), id);
  }
  EXPECT_EQ(queue.count(), 0u);
}

TEST(RequestQueue, AStreamOfHighOnesDoesNotStarveALowOne) {
  RequestQueue queue(10, 100);
  queue.Push(Request(1, Priority::kLow, 0));
  int64_t now_ns = 0;
  for (CompletionId id = 2;; ++id, now_ns += 10) {
    ASSERT_LT(now_ns, 400);
    queue.Push(Request(id, Priority::kHigh, now_ns));
    if (queue.Take(queue.Next(now_ns))->id() == 1) break;
  }
  EXPECT_GE(now_ns, 200) << "two steps of priority";
}

TEST(RequestQueue, ABrokenClockAgesNobody) {
  EXPECT_EQ(AgedPriority(Priority::kNormal, -5000, 100), 1);
  EXPECT_EQ(AgedPriority(Priority::kNormal, 99, 100), 1);
  EXPECT_EQ(AgedPriority(Priority::kNormal, 100, 100), 2);
}

TEST(WindowFill, DraftsOfFewRowsOfMany) {
  const WindowFillRule rule{.rows_max = 9, .drafts_max = 3, .drafting_sequences_max = 4};
  EXPECT_EQ(FillWindow(rule, 1), (WindowFill{.sequence_count = 1, .drafts = 3}));
  EXPECT_EQ(FillWindow(rule, 2), (WindowFill{.sequence_count = 2, .drafts = 3}));
  EXPECT_EQ(FillWindow(rule, 3), (WindowFill{.sequence_count = 3, .drafts = 2}));
  EXPECT_EQ(FillWindow(rule, 4), (WindowFill{.sequence_count = 4, .drafts = 1, .extra_count = 1}));
  EXPECT_EQ(FillWindow(rule, 5), (WindowFill{.sequence_count = 5}));
  EXPECT_EQ(FillWindow(rule, 9), (WindowFill{.sequence_count = 9, .keeps_drafting = false}));
  EXPECT_EQ(FillWindow(rule, 50), (WindowFill{.sequence_count = 9, .keeps_drafting = false}));
}

TEST(WindowFill, NeverMoreRowsThanThereAre) {
  for (uint32_t rows = 1; rows <= 16; ++rows) {
    for (uint32_t drafts = 0; drafts <= 8; ++drafts) {
      for (uint32_t count = 1; count <= 20; ++count) {
        const WindowFill fill = FillWindow(
            {.rows_max = rows, .drafts_max = drafts, .drafting_sequences_max = 20}, count);
        uint32_t used = 0;
        for (uint32_t i = 0; i < fill.sequence_count; ++i) {
          EXPECT_LE(fill.drafts_of(i), drafts);
          used += 1 + fill.drafts_of(i);
        }
        EXPECT_LE(used, rows);
        EXPECT_GE(used, std::min(rows, count));
        if (drafts >= rows && count <= rows) {
          EXPECT_EQ(used, rows) << "none is wasted";
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth
