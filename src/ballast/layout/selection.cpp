#include "ballast/layout/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

int64_t tokens_of(const Selection& selection) {
  int64_t sum = 0;
  for (const SampleRef& sample : selection) sum += sample.length;
  return sum;
}

int64_t trained_of(const Selection& selection, const SampleIndex& index) {
  int64_t sum = 0;
  for (const SampleRef& sample : selection) sum += index.trained_targets(sample.sample);
  return sum;
}

int64_t Cursor::epochs(const SampleIndex& index) const {
  if (streams.empty()) return 0;
  return streams.size() == 1 ? streams[0].epoch : tokens / index.tokens_per_epoch();
}

std::string Cursor::json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Stream& s : streams) list.push_back({{"epoch", s.epoch}, {"index", s.index}, {"trained", s.trained}});
  return nlohmann::json{{"steps", steps}, {"samples", samples}, {"tokens", tokens}, {"streams", list}}.dump();
}

Cursor Cursor::parse(const std::string& text) {
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorKind::CorruptFile, "data cursor: " + what)
        .found(printable(text))
        .expected("an object with steps, samples, tokens and streams: [{epoch, index, trained}], all counts >= 0")
        .cure("resume from an older checkpoint");
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw wrong("not a JSON object");
  const auto count = [&](const nlohmann::json& object, const char* key) {
    const auto at = object.find(key);
    if (at == object.end() || !at->is_number_integer()) throw wrong(fmt::format("'{}' is missing or no integer", key));
    if (at->is_number_unsigned() && at->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      throw wrong(fmt::format("'{}' is too large", key));
    const int64_t value = at->get<int64_t>();
    if (value < 0) throw wrong(fmt::format("'{}' is negative", key));
    return value;
  };
  Cursor cursor;
  cursor.steps = count(json, "steps"), cursor.samples = count(json, "samples"), cursor.tokens = count(json, "tokens");
  const auto streams = json.find("streams");
  if (streams == json.end() || !streams->is_array()) throw wrong("'streams' is missing or no list");
  for (const nlohmann::json& item : *streams) {
    if (!item.is_object()) throw wrong("a stream is no object");
    cursor.streams.push_back({count(item, "epoch"), count(item, "index"), count(item, "trained")});
  }
  return cursor;
}

Selector::Selector(const SampleIndex& index, uint64_t seed, int64_t batch_tokens, Cursor start)
    : index_(index), seed_(seed), batch_tokens_(batch_tokens), cursor_(std::move(start)) {
  BALLAST_CHECK(batch_tokens >= 1, "batch_tokens = {}", batch_tokens);
  const int64_t streams = index.streams();
  if (streams < 1) throw Error(ErrorKind::Data, "the data hold no samples");
  if (cursor_.streams.empty()) cursor_.streams.resize(static_cast<size_t>(streams));
  if (static_cast<int64_t>(cursor_.streams.size()) != streams)
    throw Error(ErrorKind::Data, "the data cursor does not fit the data")
        .found(fmt::format("a cursor over {} streams", cursor_.streams.size()))
        .expected(fmt::format("{} streams", streams))
        .cure("resume with the data sources that the run was started with");
  for (int64_t s = 0; s < streams; ++s) {
    const Cursor::Stream& at = cursor_.streams[static_cast<size_t>(s)];
    const int64_t samples = index.samples(s);
    if (samples < 1) throw Error(ErrorKind::Data, fmt::format("data stream {} holds no samples", s));
    if (at.index < 0 || at.index >= samples)
      throw Error(ErrorKind::Data, "the data cursor does not fit the data")
          .found(fmt::format("stream {} at sample {}", s, at.index))
          .expected(fmt::format("fewer than {}", samples))
          .cure("resume with the data and the sequence limit that the run was started with");
    orders_.emplace_back(samples, seed_ ^ (0x5851f42d4c957f2dULL * static_cast<uint64_t>(s)),
                         static_cast<uint64_t>(at.epoch));
  }
}

int64_t Selector::stream_behind() const {
  int64_t best = 0;
  double least = 0;
  for (int64_t s = 0; s < index_.streams(); ++s) {
    const double progress = static_cast<double>(cursor_.streams[static_cast<size_t>(s)].trained) / index_.weight(s);
    if (s == 0 || progress < least) best = s, least = progress;
  }
  return best;
}

Selection Selector::next() {
  Selection selection;
  int64_t tokens = 0;
  while (true) {
    const int64_t s = orders_.size() == 1 ? 0 : stream_behind();
    Cursor::Stream& at = cursor_.streams[static_cast<size_t>(s)];
    Permutation& order = orders_[static_cast<size_t>(s)];
    const SampleRef sample = index_.sample(s, order(at.index));
    if (!selection.empty() && tokens + sample.length > batch_tokens_) break;
    selection.push_back(sample);
    tokens += sample.length;
    // A sample that trains nothing counts as one, or a stream of such samples would be drawn forever.
    at.trained += std::max<int64_t>(1, index_.trained_targets(sample.sample));
    if (++at.index == order.size()) {
      at.index = 0;
      ++at.epoch;
      order = Permutation(order.size(), seed_ ^ (0x5851f42d4c957f2dULL * static_cast<uint64_t>(s)),
                          static_cast<uint64_t>(at.epoch));
    }
  }
  cursor_.steps += 1;
  cursor_.samples += static_cast<int64_t>(selection.size());
  cursor_.tokens += tokens;
  return selection;
}

Selection select_in_order(const SampleIndex& index, int64_t batch_tokens, int64_t& next) {
  Selection selection;
  int64_t tokens = 0, before = 0;
  for (int64_t s = 0; s < index.streams(); ++s) {
    const int64_t samples = index.samples(s);
    for (; next - before < samples; ++next) {
      const SampleRef sample = index.sample(s, next - before);
      if (!selection.empty() && tokens + sample.length > batch_tokens) return selection;
      selection.push_back(sample);
      tokens += sample.length;
    }
    before += samples;
  }
  return selection;
}

}  // namespace ballast
