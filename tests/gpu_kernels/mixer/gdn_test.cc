// Gated DeltaNet on the GPU: windows with partial commits and prompts against the plain recurrence
// of the scalar kernels; bits that depend neither on the number of rows nor on how rows were cut
// into windows.
#include <deque>

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/mixer/gdn_case.h"

namespace hearth {
namespace {

class Gdn : public OnGpu {
 protected:
  // A pass of `rows` over sequences; the mixed rows of all segments.
  std::vector<float> Run(const GdnCase& c, const std::vector<GpuSegment>& segments,
                         const GdnRows& rows, bool window) {
    const GpuGdnPass pass(stream(), c, segments, rows);
    const absl::Status status = pass.Launch(window, stream().view());
    EXPECT_TRUE(status.ok()) << status;
    std::vector<float> mixed = pass.mixed.Read();
    pass.quantized.ExpectFormOf(mixed);
    return mixed;
  }
  // The state of `sequence` after everything that is pending.
  std::vector<float> FlushedState(const GdnCase& c, GpuGdnSequence* sequence) {
    const DevicePass pass(stream(), {sequence->Segment(1)}, kCaseWindowRows, kCaseRingRows);
    const absl::Status status = LaunchGdnFlush(
        {.pass = pass.table(), .segment = 0, .layer_count = kCaseLayers, .shape = c.shape},
        stream().view());
    EXPECT_TRUE(status.ok()) << status;
    sequence->pending_rows = 0;
    return sequence->state.Read();
  }
};

const GpuGdnShape kFull = {16, 48, 128, 128, 4};
const GpuGdnShape kShapes[] = {
    {2, 6, 32, 32, 4}, {4, 12, 64, 64, 4}, {1, 2, 128, 64, 2}, {3, 3, 32, 128, 1}, kFull};

// What a sequence is on both sides.
struct Pair {
  PlainGdn plain;
  GpuGdnSequence gpu;
};

TEST_F(Gdn, WindowsWithPartialCommitsFollowThePlainRecurrence) {
  Prng prng(71);
  for (const GpuGdnShape& shape : kShapes) {
    const GdnCase c(shape, shape.value_dim == 64 ? OutputGate::kSilu : OutputGate::kSigmoid, 5);
    std::deque<Pair> sequences;
    for (int i = 0; i < 3; ++i) {
      sequences.push_back({PlainGdn(c), GpuGdnSequence(stream(), shape)});
    }
    for (int step = 0; step < 7; ++step) {
      std::vector<GpuSegment> segments;
      std::vector<GdnRows> of_segment;
      GdnRows all;
      for (Pair& s : sequences) {
        const auto rows = static_cast<uint32_t>(1 + prng.Below(kCaseWindowRows));
        segments.push_back(s.gpu.Segment(rows));
        of_segment.push_back(GdnRows::Random(shape, rows, &prng));
        all.Append(of_segment.back());
      }
      const std::vector<float> mixed = Run(c, segments, all, true);
      size_t at = 0;
      for (size_t i = 0; i < sequences.size(); ++i) {
        const GdnRows& rows = of_segment[i];
        PlainGdn ahead = sequences[i].plain;
        const std::vector<float> expected = ahead.Run(rows);
        ExpectClose(expected, std::span(mixed).subspan(at, expected.size()),
                    absl::StrCat("key_dim ", shape.key_dim, " step ", step, " sequence ", i));
        at += expected.size();
        const auto kept = static_cast<uint32_t>(prng.Below(rows.rows + 1));
        sequences[i].plain.Run(rows.Slice(shape, 0, kept));
        sequences[i].gpu.CommitWindow(kept);
      }
      ASSERT_FALSE(HasFailure());
    }
    for (Pair& s : sequences) {
      ExpectClose(s.plain.state(), FlushedState(c, &s.gpu), "state");
      EXPECT_TRUE(SameBits(s.gpu.state.Read(), FlushedState(c, &s.gpu)));  // nothing more to do
    }
  }
}

TEST_F(Gdn, BitsDoNotDependOnHowRowsAreCutIntoWindows) {
  for (const GpuGdnShape& shape : kShapes) {
    const GdnCase c(shape, OutputGate::kSigmoid, 6);
    Prng prng(72);
    const GdnRows rows = GdnRows::Random(shape, 18, &prng);
    const std::vector<std::vector<uint32_t>> cuts = {
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {9, 9}, {2, 7, 1, 8}, {5, 4, 3, 6}};
    std::vector<float> first;
    for (const std::vector<uint32_t>& cut : cuts) {
      GpuGdnSequence sequence(stream(), shape);
      GpuGdnSequence beside(stream(), shape);
      std::vector<float> mixed;
      uint32_t at = 0;
      for (const uint32_t count : cut) {
        // Another sequence before it, but for the first cut.
        GdnRows all = cut.size() == 18 ? GdnRows{} : GdnRows::Random(shape, 3, &prng);
        const size_t skipped = size_t{all.rows} * shape.mixed_dim();
        std::vector<GpuSegment> segments;
        if (all.rows > 0) segments.push_back(beside.Segment(all.rows));
        segments.push_back(sequence.Segment(count));
        all.Append(rows.Slice(shape, at, count));
        const std::vector<float> part = Run(c, segments, all, true);
        mixed.insert(mixed.end(), part.begin() + static_cast<ptrdiff_t>(skipped), part.end());
        sequence.CommitWindow(count);
        beside.CommitWindow(2);
        at += count;
      }
      if (first.empty()) first = mixed;
      EXPECT_TRUE(SameBits(first, mixed)) << "cut into " << cut.size() << " windows";
    }
  }
}

TEST_F(Gdn, PromptsBetweenWindowsFollowThePlainRecurrence) {
  // Factors of a prompt's products have 16 bits; the state is never as large as what formed it.
  constexpr double kPromptTolerance = 2e-5;
  Prng prng(73);
  for (const GpuGdnShape& shape : kShapes) {
    const GdnCase c(shape, OutputGate::kSigmoid, 7);
    std::deque<Pair> sequences;
    for (int i = 0; i < 3; ++i) {
      sequences.push_back({PlainGdn(c), GpuGdnSequence(stream(), shape)});
    }
    // A prompt from nothing, a window, a prompt with pending rows, windows again.
    const std::vector<std::vector<uint32_t>> steps = {
        {130, 1, 64}, {3, 9, 1}, {32, 200, 65}, {4, 4, 4}, {2, 1, 3}};
    const bool window[] = {false, true, false, true, true};
    for (size_t step = 0; step < steps.size(); ++step) {
      std::vector<GpuSegment> segments;
      GdnRows all;
      for (size_t i = 0; i < sequences.size(); ++i) {
        segments.push_back(sequences[i].gpu.Segment(steps[step][i]));
        all.Append(GdnRows::Random(shape, steps[step][i], &prng));
      }
      const std::vector<float> mixed = Run(c, segments, all, window[step]);
      uint32_t row = 0;
      for (size_t i = 0; i < sequences.size(); ++i) {
        const uint32_t count = steps[step][i];
        const GdnRows rows = all.Slice(shape, row, count);
        const std::vector<float> expected = sequences[i].plain.Run(rows);
        const size_t at = size_t{row} * shape.mixed_dim();
        ExpectClose(expected, std::span(mixed).subspan(at, expected.size()),
                    absl::StrCat("key_dim ", shape.key_dim, " step ", step, " sequence ", i),
                    kPromptTolerance);
        row += count;
        if (window[step]) {
          sequences[i].gpu.CommitWindow(count);
        } else {
          sequences[i].gpu.CommitPrompt(count);
          ExpectClose(sequences[i].plain.state(), sequences[i].gpu.state.Read(), "state",
                      kPromptTolerance);
        }
      }
      ASSERT_FALSE(HasFailure());
    }
  }
}

}  // namespace
}  // namespace hearth
