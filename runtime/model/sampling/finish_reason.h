// Why a generation ended: one enumeration for the engine, the command line and the HTTP API.
#pragma once

#include <cstdint>

namespace hearth {

enum class FinishReason : uint8_t {
  kNone = 0,       // still running
  kStop = 1,       // a stop token or a stop string
  kLength = 2,     // the token budget or the context is used up
  kCancelled = 3,  // the caller went away or asked to end
  kError = 4,
};

const char* FinishReasonName(
    FinishReason reason);  // "none", "stop", "length", "cancelled", "error"

}  // namespace hearth
