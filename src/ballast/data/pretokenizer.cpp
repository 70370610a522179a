#include "ballast/data/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

size_t next_character(std::string_view text, size_t at) {
  return at + decode_character(reinterpret_cast<const unsigned char*>(text.data()) + at).bytes;
}

// Matches and what stands between them, covering the text. An empty match right after a match does not count.
void find_parts(const PretokenizerStep& step, std::string_view text, RegexScratch& regex, std::vector<Part>& parts) {
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (begin > done) parts.push_back({done, begin, false});
    parts.push_back({begin, end, true});
    done = end;
  };
  if (step.kind == PretokenizerStep::Kind::Digits) {
    const UnicodeTable& table = unicode_table();
    for (size_t at = 0; at < text.size();) {
      const Character c = decode_character(reinterpret_cast<const unsigned char*>(text.data()) + at);
      if (classes_of(table, c.code_point) & kNumber) add(at, at + c.bytes);
      at += c.bytes;
    }
  } else if (step.known) {
    const char *begin = text.data(), *end = begin + text.size();
    for (const char* p = begin; p < end;) {
      const char* q = next_piece(*step.known, p, end);
      add(static_cast<size_t>(p - begin), static_cast<size_t>(q - begin));
      p = q;
    }
  } else {
    std::optional<size_t> last_end;
    size_t from = 0, begin, end;
    while (from <= text.size() && step.regex->find(text, from, begin, end, regex)) {
      if (begin == end && last_end == end) {
        if (end >= text.size()) break;
        from = next_character(text, end);
        // A search that begins later may not see a non-empty match at `end`; there is none, or it would have been found.
        continue;
      }
      add(begin, end);
      from = end;
      last_end = end;
    }
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
}

void cut(const PretokenizerStep& step, std::string_view text, const std::vector<Part>& parts,
         std::vector<std::string_view>& words) {
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges;
  ranges.reserve(parts.size());
  const auto is_match = [&](const Part& part) { return part.match != step.invert; };
  bool previous = false;
  switch (step.behavior) {
    case SplitBehavior::Removed:
    case SplitBehavior::Isolated:
      for (const Part& part : parts) {
        if (step.behavior == SplitBehavior::Isolated || !is_match(part)) ranges.push_back({part.begin, part.end});
      }
      break;
    case SplitBehavior::MergedWithPrevious:
      for (const Part& part : parts) {
        if (is_match(part) && !previous && !ranges.empty()) {
          ranges.back().end = part.end;
        } else {
          ranges.push_back({part.begin, part.end});
        }
        previous = is_match(part);
      }
      break;
    case SplitBehavior::MergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (is_match(*part) && !previous && !ranges.empty()) {
          ranges.back().begin = part->begin;
        } else {
          ranges.push_back({part->begin, part->end});
        }
        previous = is_match(*part);
      }
      std::reverse(ranges.begin(), ranges.end());
      break;
    case SplitBehavior::Contiguous:
      for (const Part& part : parts) {
        if (is_match(part) == previous && !ranges.empty()) {
          ranges.back().end = part.end;
        } else {
          ranges.push_back({part.begin, part.end});
        }
        previous = is_match(part);
      }
      break;
  }
  for (const Range& range : ranges) {
    if (range.end > range.begin) words.push_back(text.substr(range.begin, range.end - range.begin));
  }
}

}  // namespace

Pretokenizer::Pretokenizer(std::vector<PretokenizerStep> steps) : steps_(std::move(steps)) {
  if (steps_.size() == 1 && steps_[0].kind == PretokenizerStep::Kind::Pattern && steps_[0].known) {
    // Known patterns cover the text, so isolating matches and removing what does not match are one.
    const PretokenizerStep& step = steps_[0];
    if (step.behavior == SplitBehavior::Isolated || (step.behavior == SplitBehavior::Removed && step.invert)) single_ = step.known;
  }
}

void Pretokenizer::split(std::string_view text, PretokenizerScratch& scratch) const {
  std::vector<std::string_view>& words = scratch.words;
  words.clear();
  scratch.prefixed.clear();
  if (text.empty()) return;
  words.push_back(text);
  std::vector<Part> parts;
  for (const PretokenizerStep& step : steps_) {
    scratch.previous.swap(words);
    words.clear();
    for (const std::string_view word : scratch.previous) {
      if (step.kind == PretokenizerStep::Kind::PrefixSpace) {
        words.push_back(word[0] == ' ' ? word : scratch.prefixed.emplace_back(' ' + std::string(word)));
        continue;
      }
      parts.clear();
      find_parts(step, word, scratch.regex, parts);
      cut(step, word, parts, words);
    }
  }
}

std::string Pretokenizer::description() const {
  std::string text;
  for (const PretokenizerStep& step : steps_) {
    text += fmt::format("{}:{}:{}:{}:{};", static_cast<int>(step.kind), step.text.size(), step.text,
                        static_cast<int>(step.behavior), step.invert);
  }
  return text;
}

PretokenizerStep pattern_step(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& place) {
  PretokenizerStep step;
  step.text = pattern;
  step.known = find_known_pattern(pattern);
  if (!step.known) step.regex = std::make_shared<Regex>(pattern, place);
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

}  // namespace ballast
