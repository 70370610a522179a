#include "ballast/data/pretokenizer_unicode.h"

#include <array>
#include <map>
#include <vector>

namespace ballast {
namespace {

using Page = std::array<uint8_t, 256>;

struct BuiltTable {
  std::vector<Page> pages;
  UnicodeTable table;

  BuiltTable() {
    std::map<Page, uint16_t> known;
    size_t run = 0;
    for (uint32_t first = 0; first < 0x110000; first += 256) {
      Page page;
      for (uint32_t i = 0; i < 256; ++i) {
        while (run + 1 < kUnicodeRunCount && kUnicodeRuns[run + 1] >> 8 <= first + i) ++run;
        page[i] = static_cast<uint8_t>(kUnicodeRuns[run] & 0xFF);
      }
      const auto [at, added] = known.emplace(page, static_cast<uint16_t>(pages.size()));
      if (added) pages.push_back(page);
      table.page[first >> 8] = at->second;
    }
    table.flags = reinterpret_cast<uint8_t(*)[256]>(pages.data());
  }
};

// Bytes of the well-formed character at the beginning of `text` (Unicode, table 3-7), or 0.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t from, size_t count) {
    if (text.size() < from + count) return false;
    for (size_t i = from; i < from + count; ++i) {
      if ((byte(i) & 0xC0) != 0x80) return false;
    }
    return true;
  };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return continues(1, 1) ? 2 : 0;
  if (lead < 0xF0) {
    if (!continues(1, 2)) return 0;
    if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
    return 3;
  }
  if (!continues(1, 3)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return 4;
}

}  // namespace

const UnicodeTable& unicode_table() {
  static const BuiltTable built;
  return built.table;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

size_t invalid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && character_bytes(text.substr(at)) == 0) ++at;
  return at;
}

}  // namespace ballast
