// Snapshots for tests: one with a number of its own in every member, so that a member left out or
// mixed up with another shows, and one of a server to which nothing has happened.
#pragma once

#include "runtime/serve/telemetry/telemetry_snapshot.h"

namespace hearth {

TelemetrySnapshot FullSnapshot();

// As right after the start: two layers, slots, nothing asked for.
TelemetrySnapshot EmptySnapshot();

// The trace of FAULTS.md B38, counted by hand: 8 lookups of one layer, 3 in VRAM, 2 in RAM, 3 on
// the drive, of which one had been read ahead and one more read ahead was for nothing.
TelemetrySnapshot HandCountedSnapshot();

// A server at work as it may look after an hour: 49 layers, a card, eight requests.
TelemetrySnapshot BusySnapshot();

}  // namespace hearth
