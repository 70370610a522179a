#include "ballast/data/sample_windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {
constexpr int64_t kBlock = 64;  // records between two stored counts
}

Overlong parse_overlong(const std::string& text) {
  if (text == "split") return Overlong::Split;
  if (text == "cut") return Overlong::Cut;
  if (text == "drop") return Overlong::Drop;
  if (text == "error") return Overlong::Fail;
  const std::string near = nearest(text, std::vector<std::string>{"split", "cut", "drop", "error"});
  throw Error(ErrorKind::Usage, "unknown value '" + printable(text) + "'")
      .at("data.sequence.overlong")
      .expected("split, cut, drop or error")
      .cure(near.empty() ? "choose one of them" : "did you mean '" + near + "'?");
}

std::string name_of(Overlong overlong) {
  switch (overlong) {
    case Overlong::Split:
      return "split";
    case Overlong::Cut:
      return "cut";
    case Overlong::Drop:
      return "drop";
    case Overlong::Fail:
      return "error";
  }
  return "";
}

WindowCounts& WindowCounts::operator+=(const WindowCounts& o) {
  records += o.records, samples += o.samples, tokens += o.tokens, trained += o.trained;
  short_records += o.short_records, overlong_records += o.overlong_records, lost_tokens += o.lost_tokens;
  untrained_samples += o.untrained_samples;
  longest = std::max(longest, o.longest);
  return *this;
}

SampleWindows::SampleWindows(std::shared_ptr<const TokenStore> store, const SequenceLimit& limit)
    : store_(std::move(store)), limit_(limit) {
  BALLAST_CHECK(limit.max_tokens >= 0, "max_tokens = {}", limit.max_tokens);
  counts_.records = store_->records();
  before_.reserve(static_cast<size_t>(counts_.records / kBlock + 1));
  for (int64_t r = 0; r < counts_.records; ++r) {
    if (r % kBlock == 0) before_.push_back(counts_.samples);
    const int64_t positions = store_->length_of(r) - 1;
    counts_.longest = std::max(counts_.longest, positions);
    if (positions < 1) {
      ++counts_.short_records;
      continue;
    }
    if (limit_.max_tokens > 0 && positions > limit_.max_tokens) {
      ++counts_.overlong_records;
      if (limit_.overlong == Overlong::Fail)
        throw Error(ErrorKind::Data, "a record is longer than the sequence limit")
            .at(store_->record_name(r))
            .found(fmt::format("{} tokens of input", positions))
            .expected(fmt::format("at most data.sequence.max_tokens = {}", limit_.max_tokens))
            .cure("raise the limit, or set data.sequence.overlong to split, cut or drop");
    }
    const int64_t windows = windows_of(r);
    int64_t kept = 0;
    for (int64_t k = 0; k < windows; ++k) {
      const Window w = cut(r, k);
      const int64_t trained = store_->trained_in(r, w.begin + 1, w.begin + w.length + 1);
      kept += w.length;
      counts_.trained += trained;
      if (trained == 0) ++counts_.untrained_samples;
    }
    counts_.samples += windows;
    counts_.tokens += kept;
    counts_.lost_tokens += positions - kept;
  }
}

int64_t SampleWindows::windows_of(int64_t record) const {
  const int64_t positions = store_->length_of(record) - 1;
  if (positions < 1) return 0;
  if (limit_.max_tokens == 0 || positions <= limit_.max_tokens) return 1;
  if (limit_.overlong == Overlong::Split) return (positions + limit_.max_tokens - 1) / limit_.max_tokens;
  return limit_.overlong == Overlong::Cut ? 1 : 0;
}

Window SampleWindows::cut(int64_t record, int64_t k) const {
  const int64_t positions = store_->length_of(record) - 1,
                size = limit_.max_tokens == 0 ? positions : limit_.max_tokens;
  return {record, k * size, std::min(size, positions - k * size)};
}

Window SampleWindows::window(int64_t sample) const {
  BALLAST_CHECK(sample >= 0 && sample < counts_.samples, "sample {} of {}", sample, counts_.samples);
  const int64_t block = std::upper_bound(before_.begin(), before_.end(), sample) - before_.begin() - 1;
  int64_t left = sample - before_[static_cast<size_t>(block)];
  for (int64_t r = block * kBlock;; ++r) {
    const int64_t windows = windows_of(r);
    if (left < windows) return cut(r, left);
    left -= windows;
  }
}

Window SampleWindows::window_at(int64_t position) const {
  const int64_t record = store_->record_at(position), begin = position - store_->begin_of(record);
  const int64_t size = limit_.max_tokens == 0 ? store_->length_of(record) : limit_.max_tokens;
  BALLAST_CHECK(begin % size == 0 && begin / size < windows_of(record), "no sample starts at token {} of {}", position,
                store_->path());
  return cut(record, begin / size);
}

}  // namespace ballast
