#include "ballast/data/pretokenizer_patterns.h"

#include <array>

#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {
namespace {

using Byte = unsigned char;

struct Scanner {
  const UnicodeTable& table = unicode_table();
  const Byte* end;

  uint8_t classes(const Byte* p, uint32_t& bytes) const {
    if (*p < 0x80) {
      bytes = 1;
      return table.flags[table.page[0]][*p];
    }
    const Character c = decode_character(p);
    bytes = c.bytes;
    return classes_of(table, c.code_point);
  }
  // Past the characters that have one of `wanted`.
  const Byte* run(const Byte* p, uint8_t wanted) const {
    uint32_t bytes;
    while (p < end && (classes(p, bytes) & wanted)) p += bytes;
    return p;
  }
  // Past [^\s\p{L}\p{N}]*.
  const Byte* run_other(const Byte* p) const {
    uint32_t bytes;
    while (p < end && !(classes(p, bytes) & (kLetter | kNumber | kSpace))) p += bytes;
    return p;
  }
};

bool is_newline(Byte c) { return c == '\r' || c == '\n'; }

// Bytes of 's|'t|'re|'ve|'m|'ll|'d at p, or 0. Ignoring case, U+017F (long s) is an s too.
size_t contraction(const Byte* p, const Byte* end, bool ignore_case) {
  if (*p != '\'' || end - p < 2) return 0;
  const auto folded = [&](Byte c) { return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<Byte>(c | 0x20) : c; };
  const Byte first = folded(p[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (end - p < 3) return 0;
  if (ignore_case && p[1] == 0xC5 && p[2] == 0xBF) return 3;
  const Byte second = folded(p[2]);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  return first == 'l' && second == 'l' ? 3 : 0;
}

// \s++$ where asked for, then \s*[\r\n]+ where asked for, then \s+(?!\S)|\s+. The character at p is white space.
const Byte* white_space(const Scanner& scan, const Byte* p, bool tail_first, bool lines) {
  const Byte *after_newline = nullptr, *last = p;
  const Byte* q = p;
  uint32_t bytes;
  while (q < scan.end && (scan.classes(q, bytes) & kSpace)) {
    last = q;
    q += bytes;
    if (is_newline(*last)) after_newline = q;
  }
  if (tail_first && q == scan.end) return q;
  if (lines && after_newline) return after_newline;
  return q == scan.end || last == p ? q : last;
}

const Byte* next_gpt2(const Scanner& scan, const Byte* p) {
  if (const size_t bytes = contraction(p, scan.end, false)) return p + bytes;
  const Byte* q = *p == ' ' && p + 1 < scan.end ? p + 1 : p;
  uint32_t bytes;
  const uint8_t classes = scan.classes(q, bytes);
  if (classes & kLetter) return scan.run(q + bytes, kLetter);
  if (classes & kNumber) return scan.run(q + bytes, kNumber);
  if (!(classes & kSpace)) return scan.run_other(q + bytes);
  return white_space(scan, p, false, false);
}

const Byte* digits(const Scanner& scan, const Byte* p, int most) {
  uint32_t bytes;
  for (int i = 0; i < most && p < scan.end && (scan.classes(p, bytes) & kNumber); ++i) p += bytes;
  return p;
}

//  ?[^\s\p{L}\p{N}]+[\r\n]* (and / where asked for), or nullptr.
const Byte* punctuation(const Scanner& scan, const Byte* p, bool slash) {
  const Byte* q = *p == ' ' && p + 1 < scan.end ? p + 1 : p;
  uint32_t bytes;
  if (scan.classes(q, bytes) & (kLetter | kNumber | kSpace)) return nullptr;
  q = scan.run_other(q + bytes);
  while (q < scan.end && (is_newline(*q) || (slash && *q == '/'))) ++q;
  return q;
}

const Byte* next_cl100k(const Scanner& scan, const Byte* p, int most_digits, bool tail_first) {
  if (const size_t bytes = contraction(p, scan.end, true)) return p + bytes;
  uint32_t bytes, following;
  const uint8_t classes = scan.classes(p, bytes);
  if (classes & kLetter) return scan.run(p + bytes, kLetter);
  if (classes & kNumber) return digits(scan, p, most_digits);
  const Byte* q = p + bytes;
  if (!is_newline(*p) && q < scan.end && (scan.classes(q, following) & kLetter)) return scan.run(q + following, kLetter);
  if (const Byte* found = punctuation(scan, p, false)) return found;
  return white_space(scan, p, tail_first, true);
}

// U*W+ with U = kUpperLike, W = kLowerLike, or nullptr: U* gives back characters until one of them is in W.
const Byte* upper_then_lower(const Scanner& scan, const Byte* p) {
  const Byte *q = p, *after_both = nullptr;
  uint32_t bytes;
  while (q < scan.end) {
    const uint8_t classes = scan.classes(q, bytes);
    if (!(classes & kUpperLike)) break;
    q += bytes;
    if (classes & kLowerLike) after_both = q;
  }
  if (q < scan.end && (scan.classes(q, bytes) & kLowerLike)) return scan.run(q, kLowerLike);
  return after_both;
}

// U+W*, or nullptr.
const Byte* upper_and_lower(const Scanner& scan, const Byte* p) {
  const Byte* q = scan.run(p, kUpperLike);
  return q == p ? nullptr : scan.run(q, kLowerLike);
}

const Byte* next_o200k(const Scanner& scan, const Byte* p) {
  uint32_t bytes;
  const uint8_t classes = scan.classes(p, bytes);
  const bool prefix = !is_newline(*p) && !(classes & (kLetter | kNumber));
  for (const auto word : {upper_then_lower, upper_and_lower}) {
    const Byte* q = prefix && p + bytes < scan.end ? word(scan, p + bytes) : nullptr;
    if (!q) q = word(scan, p);
    if (q) return q < scan.end ? q + contraction(q, scan.end, true) : q;
  }
  if (classes & kNumber) return digits(scan, p, 3);
  if (const Byte* found = punctuation(scan, p, true)) return found;
  return white_space(scan, p, false, true);
}

struct Spelling {
  std::string_view text;
  KnownPattern pattern;
};

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!.|\n)|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

const char* pattern_text(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::Gpt2: return kGpt2;
    case KnownPattern::Cl100k: return kCl100k;
    case KnownPattern::Llama3: return kLlama3;
    case KnownPattern::Qwen: return kQwen;
    case KnownPattern::O200k: return kO200k;
  }
  return "";
}

std::optional<KnownPattern> find_known_pattern(std::string_view text) {
  // kCl100k is written with a look-ahead in the place of \s++$ and is no file's spelling; it serves the tests.
  static constexpr std::array<Spelling, 5> spellings{{
      {kGpt2, KnownPattern::Gpt2},
      {kLlama3, KnownPattern::Llama3},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       KnownPattern::Llama3},
      {kQwen, KnownPattern::Qwen},
      {kO200k, KnownPattern::O200k},
  }};
  for (const Spelling& spelling : spellings) {
    if (spelling.text == text) return spelling.pattern;
  }
  return {};
}

const char* next_piece(KnownPattern pattern, const char* begin, const char* end) {
  const Scanner scan{.end = reinterpret_cast<const Byte*>(end)};
  const Byte* p = reinterpret_cast<const Byte*>(begin);
  const Byte* q = nullptr;
  switch (pattern) {
    case KnownPattern::Gpt2: q = next_gpt2(scan, p); break;
    case KnownPattern::Cl100k: q = next_cl100k(scan, p, 3, true); break;
    case KnownPattern::Llama3: q = next_cl100k(scan, p, 3, false); break;
    case KnownPattern::Qwen: q = next_cl100k(scan, p, 1, false); break;
    case KnownPattern::O200k: q = next_o200k(scan, p); break;
  }
  return reinterpret_cast<const char*>(q);
}

}  // namespace ballast
