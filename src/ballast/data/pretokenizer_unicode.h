#pragma once
// Character classes of UTF-8 text as Oniguruma and Rust's regex see them (Unicode 16), so that ids depend on no system library.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ballast {

enum CharacterClass : uint8_t {
  kLetter = 1,       // \p{L}
  kNumber = 2,       // \p{N}
  kSpace = 4,        // \s
  kUpperLike = 8,    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 16,   // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kWord = 32         // \w as added tokens with single_word mean it
};

// code point << 8 | flags; ascending; each run reaches to the next.
extern const uint32_t kUnicodeRuns[];
extern const size_t kUnicodeRunCount;

// Two-stage table: pages of 256 code points, equal pages stored once.
struct UnicodeTable {
  uint16_t page[0x1100];
  uint8_t (*flags)[256];
};
extern const UnicodeTable& unicode_table();

struct Character {
  uint32_t code_point;
  uint32_t bytes;
};

// The character at `p`; the text must be valid UTF-8.
inline Character decode_character(const unsigned char* p) {
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {(p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  if (p[0] < 0xF0) return {(p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3};
  return {(p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4};
}

inline uint8_t classes_of(const UnicodeTable& table, uint32_t code_point) {
  return table.flags[table.page[code_point >> 8]][code_point & 0xFF];
}

// Bytes of the longest valid UTF-8 beginning of `text`, and of the invalid bytes before the next valid character.
size_t valid_utf8_prefix(std::string_view text);
size_t invalid_utf8_prefix(std::string_view text);

}  // namespace ballast
