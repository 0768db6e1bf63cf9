#include "runtime/serve/telemetry/serve_counters.h"

namespace hearth {

const char* RefusalName(Refusal refusal) {
  switch (refusal) {
    case Refusal::kInvalid:
      return "invalid";
    case Refusal::kContext:
      return "context";
    case Refusal::kQueueFull:
      return "queue_full";
    case Refusal::kStopping:
      return "stopping";
  }
  return "invalid";
}

const char* RequestPhaseName(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kQueued:
      return "queued";
    case RequestPhase::kReading:
      return "reading";
    case RequestPhase::kDecoding:
      return "decoding";
  }
  return "queued";
}

}  // namespace hearth
