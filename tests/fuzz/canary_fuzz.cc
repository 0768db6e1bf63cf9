// A fuzz target that must fail: tests/run.sh runs it to prove that it can see a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("ember")) __builtin_trap();
  return 0;
}
