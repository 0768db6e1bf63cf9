// Which arithmetic the network is computed in.
#pragma once

#include <cstdint>

namespace hearth {

enum class Arithmetic : uint8_t {
  kReference,  // fp32 everywhere: slow, for checking
  kFast,       // int8 activations and the canonical expert arithmetic: the product
};

}  // namespace hearth
