// The order in which a layer's experts are computed, handed out piece by piece, so that one
// fork-join serves for the whole layer: there is no barrier between the phases, only each expert
// waits for itself. Knows nothing of weights or kernels.
//
// Each memory node has a line of pieces: the preparation of its experts, then all their gate+up
// bands, then all their down bands. Workers take the next piece of their own node's line and, when
// that is used up, of the others. A piece that needs what came before it for the same expert waits
// for it. This cannot lock up: a piece waits only for pieces before it in its line, which somebody
// has already taken. Pieces are large at first and shrink to single bands at the end of a phase, so
// that all workers end together.
//
// Experts whose weights are still on their way are late: they stand in a line of their own in the
// order in which Arrive() announces them, each with all its pieces, and are worked on when the
// other lines are used up. Only then, and only when nothing has arrived, does a worker wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hearth {

enum class FlowPhase : uint8_t { kPrepare, kGateUp, kDown };

struct FlowPiece {
  FlowPhase phase = FlowPhase::kPrepare;
  uint32_t job = 0;         // index into the jobs of Begin()
  uint32_t band_begin = 0;  // of the phase's matrices; {0, 1} for kPrepare
  uint32_t band_end = 0;
};

struct FlowJob {  // one distinct expert
  uint32_t rows = 0;
  uint32_t node = 0;      // memory node that holds its weights
  bool prepared = false;  // it has nothing to prepare
  bool late = false;      // waits for Arrive()
  bool absent = false;    // somebody else's: nothing of it is handed out
};

// What a finished piece brought about.
enum class FlowEvent : uint8_t {
  kNothing,
  kHiddenComplete,  // the last gate+up piece: its worker brings the hidden rows into the form that
                    // down reads, then calls PublishHidden()
  kExpertDone       // the last down piece: the weights are not needed any more
};

struct FlowShape {
  uint32_t gate_up_band_count = 0;  // of every expert
  uint32_t down_band_count = 0;
  uint32_t gate_up_piece_bands_min = 1;
  uint32_t down_piece_bands_min = 1;
};

class ExpertFlow {
 public:
  // For at most `jobs_max` jobs at a time; allocates here only.
  ExpertFlow(uint32_t jobs_max, uint32_t worker_count, uint32_t node_count);

  // A new layer. Before the fork: no worker may be in Next().
  void Begin(std::span<const FlowJob> jobs, const FlowShape& shape);

  // The next piece for a worker of `node`, once everything it needs is there; false when all pieces
  // are taken (others may still be at work). The caller runs the piece, then calls Finish().
  bool Next(uint32_t node, FlowPiece* piece);

  FlowEvent Finish(const FlowPiece& piece);
  void PublishHidden(uint32_t job);

  // A late expert's weights are there, or will never be: then nothing of it is handed out. Once for
  // each late job, after Begin(), from any thread. What the caller wrote before is seen by the
  // workers.
  void Arrive(uint32_t job, bool usable);

 private:
  // How far an expert has come: pieces of the later phase wait for it.
  enum Stage : uint32_t { kWaiting, kPrepared, kHiddenReady };
  struct alignas(64) JobState {
    std::atomic<uint32_t> stage{kWaiting};
    std::atomic<uint32_t> gate_up_bands_left{0};
    std::atomic<uint32_t> down_bands_left{0};
  };
  struct Segment {       // one phase of one line
    uint64_t begin = 0;  // position of its first band in the line
    uint64_t end = 0;
    uint32_t band_count = 0;  // of each job
    uint32_t piece_bands_min = 1;
  };
  struct Line {
    std::vector<uint32_t> jobs;          // of this node
    std::vector<uint32_t> jobs_unready;  // those with something to prepare
    std::vector<uint64_t> cost_before;   // of the first i jobs, for one band of each
    Segment segments[3];                 // by FlowPhase
    alignas(64) std::atomic<uint64_t> cursor{0};
  };

  static constexpr uint32_t kNotArrived = UINT32_MAX;
  static constexpr uint32_t kUnusable = 1u << 31;  // beside the job's index

  bool Take(Line& line, FlowPiece* piece);
  bool TakeLate(FlowPiece* piece);
  uint32_t LatePieceAt(uint64_t at, uint32_t job, FlowPiece* piece) const;
  void AwaitStage(const FlowPiece& piece) const;
  uint32_t PieceAt(const Line& line, uint64_t at, FlowPiece* piece) const;

  const uint32_t worker_count_;
  std::span<const FlowJob> jobs_;
  std::vector<JobState> states_;
  std::unique_ptr<Line[]> lines_;
  uint32_t line_count_ = 1;

  // Late jobs: position = arrival x late_span_ + offset, an offset being the preparation, a gate+up
  // band or a down band. Ordering: Arrive() releases late_order_[i], workers acquire it.
  FlowShape shape_;
  uint32_t late_count_ = 0;
  uint32_t late_span_ = 1;
  std::vector<std::atomic<uint32_t>> late_order_;  // job by arrival, or kNotArrived
  alignas(64) std::atomic<uint32_t> arrived_count_{0};
  alignas(64) std::atomic<uint64_t> late_cursor_{0};
};

}  // namespace hearth
