// The parts of the dashboard, each drawn into the area that it is given.
#pragma once

#include <cstdint>

#include "tools/hearth/top/cell_grid.h"
#include "tools/hearth/top/top_view.h"

namespace hearth::cli {

// One row: what runs, for how long, where.
void DrawHeading(const TopView& view, const Area& area);
// One row: what is in flight and how requests ended.
void DrawRequestCounts(const TelemetrySnapshot& s, const Area& area);
// Tokens per second and times to the first token; half of the rows each.
void DrawSpeed(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// A heading, bars of experts, bytes and time, and their legend: five rows.
void DrawTiers(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// The layers' shares: two rows, or one for each service.
void DrawLayers(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// A row for each channel under a heading: rate, budget and measured maximum.
void DrawChannels(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// A heading and a row for each position of a draft.
void DrawDrafts(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// RAM and VRAM: use, plan and limit; slots; regret: four rows.
void DrawMemory(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// The last swaps under a heading.
void DrawSwaps(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// Requests in flight under a heading.
void DrawInFlight(const TelemetrySnapshot& s, const Area& area);
// Times: quantiles of what is waited for, under a heading: seven rows.
void DrawTimes(const TelemetrySnapshot& s, const Area& area);
// Windows by rows, under a heading.
void DrawWindows(const TelemetrySnapshot& s, const Looks& looks, const Area& area);
// The prefix cache, the RAM tier and HTTP, under headings.
void DrawCounters(const TelemetrySnapshot& s, const Area& area);
// The parts of the memory plan, largest first, under a heading.
void DrawPlan(const TelemetrySnapshot& s, const Area& area);

}  // namespace hearth::cli
