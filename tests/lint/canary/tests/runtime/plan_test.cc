// Names calls.cc and long.cc, so that they count as tested.
#include "runtime/base/long.h"
#include "runtime/plan/calls.h"
#include "runtime/plan/needs_string.h"
