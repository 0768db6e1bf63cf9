#include "pack/format/xt_code.h"

#include "pack/format/xt_code_tables.h"
#include "runtime/base/check.h"

namespace hearth {

const XtCode& XtCodeOf(uint32_t bits) {
  HEARTH_CHECK(bits >= 2 && bits <= 4);
  return bits == 2 ? kXt2 : (bits == 3 ? kXt3 : kXt4);
}

}  // namespace hearth
