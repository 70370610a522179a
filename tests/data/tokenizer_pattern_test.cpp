// The hand-written matchers against PCRE2 running the patterns' text, and the translation of Oniguruma's dialect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ballast/base/error.h"
#include "ballast/data/pretokenizer.h"
#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {
namespace {

void append_utf8(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
             static_cast<char>(0x80 | (c & 0x3F))};
  }
}

bool matches(const Regex& regex, const std::string& text) {
  static RegexScratch scratch;
  size_t begin, end;
  return regex.find(text, 0, begin, end, scratch);
}

// Code points that the installed PCRE2 knows: younger ones have no class there yet.
const std::vector<uint32_t>& assigned() {
  static const std::vector<uint32_t> all = [] {
    const Regex unassigned("\\p{Cn}", "test");
    std::vector<uint32_t> known;
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string text;
      append_utf8(text, c);
      if (!matches(unassigned, text)) known.push_back(c);
    }
    return known;
  }();
  return all;
}

TEST(TokenizerPattern, ClassesOfAllCharactersEqualPcre2) {
  const std::pair<CharacterClass, const char*> rows[] = {{kLetter, "\\p{L}"}, {kNumber, "\\p{N}"}, {kSpace, "\\s"},
                                                         {kUpperLike, "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"}, {kLowerLike, "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"}};
  EXPECT_GT(assigned().size(), 280'000u);
  for (const auto& [flag, pattern] : rows) {
    const Regex regex(pattern, "test");
    int differ = 0;
    for (const uint32_t c : assigned()) {
      std::string text;
      append_utf8(text, c);
      differ += matches(regex, text) != ((classes_of(unicode_table(), c) & flag) != 0);
    }
    EXPECT_EQ(differ, 0) << pattern;
  }
}

TEST(TokenizerPattern, MatchersEqualPcre2OnRandomTexts) {
  std::mt19937 random(7);
  const std::string_view frequent = "aabestrlmvdASTRLDMV''''      \n\n\r\t0123.,!?-/";
  const std::vector<uint32_t> rare{0x17F, 0xE9, 0x301, 0x4E2D, 0x627, 0x1F600, 0x200D, 0xA0, 0x3000, 0x85, 0x2028, 0x180E, 0xB2, 0x664, 0x1C5, 0x2B0, 0x903, 0xFEFF, 0, 0x212A};
  for (const KnownPattern pattern : {KnownPattern::Gpt2, KnownPattern::Cl100k, KnownPattern::Llama3, KnownPattern::Qwen, KnownPattern::O200k}) {
    PretokenizerStep by_hand, by_pcre;
    by_hand.known = pattern;
    by_pcre.regex = std::make_shared<Regex>(pattern_text(pattern), "test");
    const Pretokenizer fast({by_hand}), slow({by_pcre});
    EXPECT_EQ(fast.single(), pattern);
    for (int round = 0; round < 5'000; ++round) {
      std::string text;
      for (uint32_t length = random() % 40; length > 0; --length) {
        const uint32_t kind = random() % 10;
        append_utf8(text, kind < 7 ? static_cast<uint32_t>(frequent[random() % frequent.size()]) : kind < 9 ? rare[random() % rare.size()] : assigned()[random() % assigned().size()]);
      }
      PretokenizerScratch a, b;
      fast.split(text, a);
      slow.split(text, b);
      ASSERT_EQ(a.words, b.words) << pattern_text(pattern) << "\n" << text;
    }
  }
}

TEST(TokenizerPattern, LongTextsDoNotBreakPcre2) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "ab";
  PretokenizerScratch scratch;
  // A group that repeats needs a stack frame a time: the JIT's stack ends, the interpreter goes on.
  const Pretokenizer groups({pattern_step("(?:a|b|ab)+", SplitBehavior::Isolated, false, "test")});
  groups.split(text, scratch);
  EXPECT_EQ(scratch.words.size(), 1u);
  // More steps than PCRE2 allows: a typed error, never a shortened match.
  const Pretokenizer exponential({pattern_step("(?:a|b|ab)+(?:a|b|ab)+[cd]", SplitBehavior::Isolated, false, "pattern of the test")});
  try {
    exponential.split(text.substr(0, 60), scratch);
    FAIL() << scratch.words.size();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    EXPECT_THAT(error.what(), testing::HasSubstr("pattern of the test"));
  }
}

TEST(TokenizerPattern, TranslatesWhatDiffers) {
  EXPECT_EQ(translate_regex("a\\s[\\s]", ""), "a[\\x{9}-\\x{d}\\x{85}\\p{Z}][\\x{9}-\\x{d}\\x{85}\\p{Z}]");
  EXPECT_EQ(translate_regex("[^\\S]", ""), "[^\\S\\x{180e}]");
  EXPECT_EQ(translate_regex("\\u00e9{1,3}(?i:'s)\\W", ""), "\\x{00e9}{1,3}(?i:'s)[^\\p{L}\\p{M}\\p{Nd}\\p{Pc}]");
  EXPECT_EQ(quote_regex("a.b|-"), "a\\.b\\|\\-");
}

TEST(TokenizerPattern, RefusesWhatPcre2ReadsOtherwise) {
  for (const char* pattern : {"^a", "a$", "\\h", "\\Ga", "[a[b]]", "[a&&b]", "(?m:a)", "(?<name>a)", "\\p{Foo}", "\\pL", "a{1,3}+", "a{,3}", "[\\W]", "\\xe9", "\\k<a>", "[a", "[]"}) {
    try {
      Regex(pattern, "place of the pattern");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_THAT(error.what(), testing::HasSubstr("place of the pattern"));
    }
  }
  EXPECT_THROW(Regex("(a", "unbalanced"), Error);
  EXPECT_THROW(Regex("*", "nothing to repeat"), Error);
}

}  // namespace
}  // namespace ballast
