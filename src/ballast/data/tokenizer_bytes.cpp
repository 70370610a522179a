#include "ballast/data/tokenizer_bytes.h"

#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {
namespace {

bool stands_for_itself(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }

struct Alphabet {
  std::array<std::string, 256> character;
  std::array<int, 512> byte;   // of a code point, or -1

  Alphabet() {
    byte.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const int c = stands_for_itself(b) ? b : next++;
      byte[static_cast<size_t>(c)] = b;
      std::string& text = character[static_cast<size_t>(b)];
      if (c < 0x80) {
        text = static_cast<char>(c);
      } else {
        text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet built;
  return built;
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() { return alphabet().character; }

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  if (valid_utf8_prefix(text) != text.size()) return {};
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Character c = decode_character(reinterpret_cast<const unsigned char*>(text.data()) + at);
    const int byte = c.code_point < 512 ? alphabet().byte[c.code_point] : -1;
    if (byte < 0) return {};
    bytes += static_cast<char>(byte);
    at += c.bytes;
  }
  return bytes;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const size_t digits = text.size() - padding;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int value = base64_value(text[i]);
    if (value < 0) return {};
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 == 3) {
      bytes += {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8 & 0xFF), static_cast<char>(bits & 0xFF)};
      bits = 0;
    }
  }
  if (padding == 1) {
    if (bits & 3) return {};
    bytes += {static_cast<char>(bits >> 10), static_cast<char>(bits >> 2 & 0xFF)};
  } else if (padding == 2) {
    if (bits & 15) return {};
    bytes += static_cast<char>(bits >> 4);
  }
  return bytes;
}

}  // namespace ballast
