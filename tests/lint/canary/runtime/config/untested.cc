// A source that no test names.
#include "runtime/config/untested.h"
