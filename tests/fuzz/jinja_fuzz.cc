// Any bytes as a chat template: parsing and rendering must end with a text or a Status. The part
// after the first 0x00 byte, if there is one, is JSON of the messages.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/model/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto parsed = hearth::ChatTemplate::Parse(input.substr(0, zero), "fuzz.jinja");
  if (!parsed.ok()) return 0;
  hearth::ChatRequest request = hearth::SingleUserTurn("Hi \xC3\xA9", "Be brief.");
  if (zero != std::string_view::npos) request.messages_json = input.substr(zero + 1);
  request.tools_json = R"([{"type": "function", "function": {"name": "f", "x": [1, 2.5, null]}}])";
  request.eos_token = "<|im_end|>";
  (void)parsed->Render(request).status();
  return 0;
}
