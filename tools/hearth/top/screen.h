// The terminal: paints grids of cells and reads keys, and leaves everything as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "tools/hearth/top/cell_grid.h"
#include "tools/hearth/top/widgets.h"

namespace hearth::cli {

struct TerminalSize {
  uint32_t rows = 24;
  uint32_t columns = 80;
};

// Of standard output; none: it is no terminal.
std::optional<TerminalSize> OutputTerminalSize();

// What the locale allows: blocks only in UTF-8. Sets the locale of characters of this process.
bool LocaleIsUtf8();

// One at a time, for one thread.
class Screen {
 public:
  enum class Key : uint8_t { kNone, kQuit, kResize, kOther };

  // FailedPrecondition, with the terminal untouched, where it cannot place its cursor (TERM is
  // dumb, or not known) or input or output is none.
  static absl::StatusOr<std::unique_ptr<Screen>> Open();
  virtual ~Screen() = default;  // the terminal is as it was before

  virtual TerminalSize size() const = 0;
  virtual Looks looks() const = 0;
  // Sends what differs from what is shown. A grid of another size is clipped.
  virtual void Paint(const CellGrid& grid) = 0;
  // Waits that long at most; a signal ends the wait early.
  virtual Key WaitKey(int64_t wait_ns) = 0;
};

}  // namespace hearth::cli
