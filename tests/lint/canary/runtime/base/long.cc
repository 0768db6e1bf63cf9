// Lint appends 600 lines here.
#include "runtime/base/long.h"
