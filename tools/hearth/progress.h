// The progress of long work as one line on the talk stream: how much, how fast, how long still.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "runtime/base/clock.h"
#include "tools/hearth/command.h"

namespace hearth::cli {

enum class ProgressUnit { kBytes, kTokens, kCases, kWeights };

struct ProgressOptions {
  std::string label;  // "packing"
  ProgressUnit unit = ProgressUnit::kBytes;
  uint64_t total = 0;  // in units; 0 = unknown: no percentage, no time left
};

// Silent for two seconds. Then, on a terminal, one line that overwrites itself up to ten times a
// second and goes away at the end; elsewhere a plain line every ten seconds. Thread-compatible.
class Progress {
 public:
  Progress(const CommandIo& io, ProgressOptions options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void Update(uint64_t done);  // units so far; cheap enough to be called for every unit of work
  void Hide();  // takes the line away, so that results can be written; the next Update() returns it

 private:
  std::string Line(uint64_t done, int64_t elapsed_ns) const;

  std::ostream& talk_;
  Clock& clock_;
  const bool terminal_;
  const ProgressOptions options_;
  const int64_t start_ns_;
  int64_t next_ns_;  // nothing is written before
  bool line_open_ = false;
};

// "8 s", "3 min 05 s", "2 h 10 min"
std::string FormatSeconds(uint64_t seconds);

}  // namespace hearth::cli
