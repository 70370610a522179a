// Oniguruma's dialect, as Hugging Face's files use it, in PCRE2's: what means the same goes through, what differs is written out
// or refused by name.
#include <fmt/format.h>

#include <cctype>

#include "ballast/base/error.h"
#include "ballast/data/pretokenizer_regex.h"

namespace ballast {
namespace {

// PCRE2's \s takes U+180E too, and its \w other marks: both are written out. Insides of a character class.
constexpr std::string_view kSpaces = R"(\x{9}-\x{d}\x{85}\p{Z})";
constexpr std::string_view kWordCharacters = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& place) : pattern_(pattern), place_(place) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        character_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        interval();
      } else if (c == '^' || c == '$') {
        refuse(std::string(1, c), "lines have other ends in Oniguruma");
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& construct, const std::string& why) const {
    throw Error(ErrorKind::Data, fmt::format("the regular expression uses {}, which is not supported: {}", printable(construct), why))
        .at(place_, fmt::format("offset {}", at_))
        .found(printable(std::string(pattern_)));
  }

  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  void escape(bool in_class) {
    const char c = peek(1);
    const auto write = [&](std::string_view inside, bool negated) {
      if (in_class && negated) refuse(std::string{'\\', c}, "a negated class inside a class");
      out_ += in_class ? std::string(inside) : fmt::format("[{}{}]", negated ? "^" : "", inside);
      at_ += 2;
    };
    switch (c) {
      case 's': return write(kSpaces, false);
      case 'S':
        if (!in_class) return write(kSpaces, true);
        out_ += R"(\S\x{180e})";
        at_ += 2;
        return;
      case 'w': return write(kWordCharacters, false);
      case 'W': return write(kWordCharacters, true);
      case 'd': case 'D': case 'n': case 'r': case 't': case 'f': return copy(2);
      case 'p': case 'P': return property();
      case 'x': case 'u': return code_point(c);
      default: break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7F && !std::isalnum(byte)) return copy(2);   // an escaped sign is itself
    if (c == ' ') return copy(2);
    refuse(std::string{'\\', c}, "this escape");
  }

  void property() {
    size_t length = 2;
    if (peek(2) == '{') {
      while (peek(length) != '}' && peek(length) != '\0') ++length;
      ++length;
    }
    const std::string name(pattern_.substr(at_, length));
    // General categories mean the same in both; scripts and POSIX names are left to PCRE2 only where both spell them alike.
    static constexpr std::string_view known[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                                 "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                                 "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc",
                                                 "Cf", "Cn", "Co", "Han", "Hiragana", "Katakana", "Latin", "Greek",
                                                 "Cyrillic", "Hangul", "Arabic", "Hebrew", "Thai", "Devanagari"};
    if (length > 4) {
      std::string_view inner = std::string_view(name).substr(3, name.size() - 4);
      if (!inner.empty() && inner[0] == '^') inner.remove_prefix(1);
      for (const std::string_view property : known) {
        if (property == inner) return copy(length);
      }
    }
    refuse(name, "this property");
  }

  void code_point(char kind) {
    size_t at = at_ + 2, digits = 0;
    const bool braces = kind == 'x' && peek(2) == '{';
    if (braces) ++at;
    const size_t most = braces ? 6 : kind == 'x' ? 2 : 4;
    std::string hex;
    while (digits < most && at < pattern_.size() && std::isxdigit(static_cast<unsigned char>(pattern_[at]))) {
      hex += pattern_[at++];
      ++digits;
    }
    if (digits == 0 || (kind == 'u' && digits != 4)) refuse(std::string{'\\', kind}, "it needs hexadecimal digits");
    if (braces && (at >= pattern_.size() || pattern_[at++] != '}')) refuse("\\x{", "no closing brace");
    if (kind == 'x' && !braces && std::stoul(hex, nullptr, 16) > 0x7F) refuse("\\x" + hex, "a byte in place of a character");
    out_ += "\\x{" + hex + "}";
    at_ = at;
  }

  void character_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') refuse("[]", "an empty class");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      const char c = pattern_[at_];
      if (c == '[') refuse("[ inside [ ]", "nested classes");
      if (c == '&' && peek(1) == '&') refuse("&&", "intersections of classes");
      if (c == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    if (at_ >= pattern_.size()) refuse("[", "the class has no end");
    copy(1);
  }

  void group() {
    static constexpr std::string_view known[] = {"(?:", "(?i:", "(?!", "(?=", "(?<!", "(?<=", "(?>"};
    if (peek(1) != '?') return copy(1);
    for (const std::string_view opening : known) {
      if (pattern_.substr(at_, opening.size()) == opening) return copy(opening.size());
    }
    refuse(std::string(pattern_.substr(at_, 4)), "this kind of group");
  }

  // {n}, {n,}, {n,m}. Oniguruma reads {1,3}+ as a repeated interval where PCRE2 makes it possessive, and {,n} as {0,n}.
  void interval() {
    size_t length = 1;
    bool digit = false;
    while (std::isdigit(static_cast<unsigned char>(peek(length)))) ++length, digit = true;
    if (peek(length) == ',') ++length;
    while (std::isdigit(static_cast<unsigned char>(peek(length)))) ++length;
    if (!digit || peek(length) != '}') refuse("{", "not an interval such as {1,3}");
    ++length;
    if (peek(length) == '+') refuse("}+", "Oniguruma repeats the interval, others make it possessive");
    copy(length);
  }

  std::string_view pattern_;
  std::string place_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, const std::string& place) {
  if (pattern.size() > 64 * 1024) {
    throw Error(ErrorKind::Data, "the regular expression is too long").at(place).found(fmt::format("{} bytes", pattern.size()));
  }
  return Translator(pattern, place).run();
}

std::string quote_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}-").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace ballast
