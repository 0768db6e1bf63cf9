// What `hearth top` shows: a snapshot and the state of the way to it, as cells. Pure: the same view
// and size give the same picture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/serve/telemetry/telemetry_snapshot.h"
#include "tools/hearth/top/cell_grid.h"
#include "tools/hearth/top/widgets.h"

namespace hearth::cli {

struct TopView {
  std::optional<TelemetrySnapshot> snapshot;  // the last one; none: none has come
  std::string source;                         // where from: an address or a file
  // Why there is no newer one; empty: there is. Shown with the time since.
  std::string trouble;
  int64_t trouble_ns = 0;
  uint32_t restarts = 0;  // of the server, while we looked
  std::string help = "q quits";
  Looks looks;
};

// Any size: what does not fit is left out, the most important last. Made for 80 x 24 and more, and
// for 200 x 60 and more.
CellGrid DrawTop(const TopView& view, uint32_t rows, uint32_t columns);

}  // namespace hearth::cli
