// Any bytes taken as a tokenizer.json give a tokenizer or a typed error, and such a tokenizer encodes and decodes any text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = ballast::parse_tokenizer_json(bytes, "fuzz.json");
    tokenizer->decode(tokenizer->encode(bytes.substr(0, 512)));
    tokenizer->encode_ordinary("It's 12 o'clock\r\n \xff \xc3\xa9");
  } catch (const ballast::Error& error) {
    if (error.kind() == ballast::ErrorKind::Internal) __builtin_trap();
  }
  return 0;
}
