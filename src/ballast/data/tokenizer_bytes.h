#pragma once
// How tokenizer files write bytes as text: GPT-2's alphabet of 256 printable characters, and base64.
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ballast {

// The character of each byte, as UTF-8: printable Latin-1 stands for itself, the others for U+0100 and on.
const std::array<std::string, 256>& byte_alphabet();
// The bytes that the characters of `text` stand for; nothing if one of them is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);
// Strict: padding where it belongs, no other characters, no stray bits.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ballast
