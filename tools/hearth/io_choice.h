// How the flag --io is said to the readers: configs do not know the cache.
#pragma once

#include "cache/io/open_reader.h"
#include "runtime/config/cache_config.h"

namespace hearth::cli {

constexpr IoChoice IoChoiceOf(ReadMethod method) {
  return method == ReadMethod::kUring   ? IoChoice::kUring
         : method == ReadMethod::kPread ? IoChoice::kPread
                                        : IoChoice::kAuto;
}

}  // namespace hearth::cli
