#include "ballast/data/source.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/data/foreign_store.h"

namespace ballast {

namespace {

constexpr uint64_t kPositionMask = (uint64_t{1} << kPositionBits) - 1;
constexpr size_t kMostStores = size_t{1} << (64 - kPositionBits);

int64_t position_of(uint64_t sample) { return static_cast<int64_t>(sample & kPositionMask); }

}  // namespace

DataSet::DataSet(const std::vector<Stream>& streams, const SequenceLimit& limit, int32_t end_of_text)
    : limit_(limit), end_of_text_(end_of_text) {
  BALLAST_CHECK(!streams.empty());
  for (const Stream& stream : streams) {
    Part part{stream.weight, windows_.size(), {0}};
    for (const auto& store : stream.stores) {
      if (windows_.size() == kMostStores)
        throw Error(ErrorKind::Usage, fmt::format("more than {} token files", kMostStores))
            .at("data")
            .cure("join some of them");
      BALLAST_CHECK(static_cast<uint64_t>(store->tokens()) <= kPositionMask, "{} tokens in one store", store->tokens());
      windows_.emplace_back(store, limit);
      counts_ += windows_.back().counts();
      part.before.push_back(part.before.back() + windows_.back().samples());
    }
    if (part.before.back() == 0) {
      WindowCounts counts;
      for (size_t i = part.first; i < windows_.size(); ++i) counts += windows_[i].counts();
      throw Error(ErrorKind::Data, "the data hold no sample")
          .at(stream.stores.empty()                    ? "data"
              : stream.stores.front()->files().empty() ? stream.stores.front()->path()
                                                       : stream.stores.front()->files().front().path)
          .found(fmt::format("{} records, {} of fewer than two tokens, {} over the sequence limit", counts.records,
                             counts.short_records, counts.overlong_records))
          .cure(counts.overlong_records > 0 ? "raise data.sequence.max_tokens, or set data.sequence.overlong: split"
                                            : "check the files and data.fields");
    }
    streams_.push_back(std::move(part));
  }
}

SampleRef DataSet::sample(int64_t stream, int64_t index) const {
  const Part& part = streams_[static_cast<size_t>(stream)];
  const auto store =
      static_cast<size_t>(std::upper_bound(part.before.begin(), part.before.end(), index) - part.before.begin() - 1);
  const SampleWindows& windows = windows_[part.first + store];
  const Window window = windows.window(index - part.before[store]);
  return {
      static_cast<uint64_t>(part.first + store) << kPositionBits | static_cast<uint64_t>(windows.position_of(window)),
      window.length};
}

const SampleWindows& DataSet::windows_of(uint64_t sample) const {
  const uint64_t store = sample >> kPositionBits;
  BALLAST_CHECK(store < windows_.size(), "sample {:x} names store {} of {}", sample, store, windows_.size());
  return windows_[store];
}

int64_t DataSet::trained_targets(uint64_t sample) const {
  const SampleWindows& windows = windows_of(sample);
  const Window w = windows.window_at(position_of(sample));
  return windows.store().trained_in(w.record, w.begin + 1, w.begin + w.length + 1);
}

int64_t DataSet::length(uint64_t sample) const { return windows_of(sample).window_at(position_of(sample)).length; }

void DataSet::read(uint64_t sample, int64_t begin, int64_t length, int64_t* ids, int64_t* targets) const {
  const SampleWindows& windows = windows_of(sample);
  const Window w = windows.window_at(position_of(sample));
  BALLAST_CHECK(begin >= 0 && length >= 0 && begin <= w.length - length, "inputs [{}, +{}) of a sample of {}", begin,
                length, w.length);
  const TokenStore& store = windows.store();
  const int64_t first = position_of(sample) + begin;  // in the store
  if (ids) store.read(first, length, ids);
  if (!targets) return;
  store.read(first + 1, length, targets);
  if (store.all_trained()) return;
  int64_t done = 0;  // targets before it are settled; target i is the record's token w.begin + begin + i + 1
  const int64_t origin = w.begin + begin + 1;
  for (const Span& span : store.spans_of(w.record)) {
    const int64_t from = std::clamp<int64_t>(span.begin - origin, done, length),
                  to = std::clamp<int64_t>(span.end - origin, from, length);
    std::fill(targets + done, targets + from, int64_t{-1});
    done = to;
  }
  std::fill(targets + done, targets + length, int64_t{-1});
}

uint64_t DataSet::fingerprint() const {
  std::vector<uint64_t> parts{static_cast<uint64_t>(limit_.max_tokens), static_cast<uint64_t>(limit_.overlong),
                              static_cast<uint64_t>(end_of_text_)};
  for (const Part& part : streams_) {
    parts.push_back(std::bit_cast<uint64_t>(part.weight));
    parts.push_back(part.before.size());
  }
  for (const SampleWindows& windows : windows_) parts.push_back(windows.store().fingerprint());
  return XXH3_64bits(parts.data(), parts.size() * 8);
}

std::string DataSet::report() const {
  const WindowCounts& c = counts_;
  const auto number = [](int64_t count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); };
  std::string text = fmt::format("{}, {}, {}, {} per epoch", number(c.records, "record"), number(c.samples, "sample"),
                                 number(c.tokens, "token"), number(c.trained, "trained target"));
  if (c.short_records > 0) {
    text += fmt::format("; {} of fewer than two tokens give{} no sample", number(c.short_records, "record"),
                        c.short_records == 1 ? "s" : "");
  }
  if (c.overlong_records > 0) {
    const char* done = limit_.overlong == Overlong::Split ? "split"
                       : limit_.overlong == Overlong::Cut ? "cut"
                                                          : "dropped";
    text += fmt::format("; {} over {} {}", number(c.overlong_records, "record"), number(limit_.max_tokens, "token"), done);
    if (c.lost_tokens > 0) text += fmt::format(" ({} left out)", number(c.lost_tokens, "token"));
  }
  if (c.untrained_samples > 0) text += fmt::format("; {} no trained target", c.untrained_samples == 1 ? "1 sample holds" : fmt::format("{} samples hold", c.untrained_samples));
  return text;
}

int64_t DataSet::highest_id() const {
  int64_t highest = end_of_text_;  // padding is made of it
  for (const SampleWindows& windows : windows_) highest = std::max(highest, windows.store().highest_id());
  return highest;
}

void DataSet::check_vocabulary(int64_t model_vocab) const {
  for (const SampleWindows& windows : windows_) ballast::check_vocabulary(windows.store(), model_vocab);
  if (end_of_text_ >= model_vocab)
    throw Error(ErrorKind::Data, "the tokenizer's end-of-text is outside the model's vocabulary")
        .at("data.tokenizer")
        .found(fmt::format("id {}", end_of_text_))
        .expected(fmt::format("ids below {}", model_vocab))
        .cure("use the tokenizer that belongs to the model");
}

void DataSet::verify() const {
  for (const SampleWindows& windows : windows_) windows.store().verify();
}

std::unique_ptr<DataSet> open_data(const std::vector<DataSource>& sources, const Tokenizer& tokenizer,
                                   const DataOptions& options) {
  if (sources.empty())
    throw Error(ErrorKind::Data, "no data are named").at("data.train").cure("set it to a list of files");
  const bool weighted = sources.front().weight.has_value();
  std::vector<DataSet::Stream> streams;
  for (const DataSource& source : sources) {
    if (source.weight.has_value() != weighted)
      throw Error(ErrorKind::Usage, "some data sources have a weight and some have none")
          .at("data")
          .cure("give every source a weight, or none");
    if (weighted && !(*source.weight > 0 && std::isfinite(*source.weight)))
      throw Error(ErrorKind::Usage, "a data source's weight must be positive")
          .at("data")
          .found(fmt::format("{}", *source.weight));
    if (source.paths.empty()) throw Error(ErrorKind::Data, "a data source names no files").at("data");
    if (weighted || streams.empty()) streams.emplace_back();
    DataSet::Stream& stream = streams.back();
    if (weighted) stream.weight = *source.weight;
    std::vector<std::string> records;
    for (const std::string& path : source.paths) {
      if (is_foreign(path))
        stream.stores.push_back(open_foreign(path));
      else if (std::filesystem::path(path).extension() == ".store")
        stream.stores.push_back(open_store(path, tokenizer.hash()));
      else
        records.push_back(path);
    }
    if (records.empty()) continue;
    const PrepareReport prepared = prepare_store(records, options.format, tokenizer, options.prepare);
    stream.stores.push_back(open_store(prepared.store, tokenizer.hash()));
  }
  return std::make_unique<DataSet>(streams, options.limit, tokenizer.end_of_text());
}

}  // namespace ballast
