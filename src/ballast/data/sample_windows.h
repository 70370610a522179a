#pragma once
// A store's records under a sequence limit: which windows of which record are samples, without a list of them.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ballast/data/token_store.h"

namespace ballast {

// What happens to a record of more than max_tokens input positions.
enum class Overlong {
  Split,   // window k has the inputs [kT, (k+1)T) and the targets shifted by one: each target once, positions from 0 in each window
  Cut,     // the first T positions only
  Drop,    // no sample
  Fail     // an error that names the record
};
// split, cut, drop, error. Throws Error(Usage) for others.
Overlong parse_overlong(const std::string& text);
std::string name_of(Overlong overlong);

struct SequenceLimit {
  int64_t max_tokens = 0;   // input positions of one sample; 0 = none
  Overlong overlong = Overlong::Split;
};

// What became of the records: everything that is not trained as it stands is counted here.
struct WindowCounts {
  int64_t records = 0, samples = 0;
  int64_t tokens = 0, trained = 0;       // input tokens and trained targets of all samples
  int64_t short_records = 0;             // fewer than two tokens: no sample
  int64_t overlong_records = 0;          // beyond the limit: split, cut or dropped
  int64_t lost_tokens = 0;               // input positions that cut and drop leave out
  int64_t untrained_samples = 0;         // windows in which no target is trained (inside a long prompt)
  int64_t longest = 0;                   // input positions of the longest record, before the limit
  WindowCounts& operator+=(const WindowCounts& other);
};

struct Window {
  int64_t record, begin, length;   // inputs [begin, begin + length) of the record's tokens
};

class SampleWindows {
 public:
  // Reads all record lengths once. Throws Error(Data) for Overlong::Fail.
  SampleWindows(std::shared_ptr<const TokenStore> store, const SequenceLimit& limit);
  const TokenStore& store() const { return *store_; }
  const WindowCounts& counts() const { return counts_; }
  int64_t samples() const { return counts_.samples; }
  Window window(int64_t sample) const;      // 0 <= sample < samples(), in the store's order
  Window window_at(int64_t position) const; // the one that starts with the store's token `position`; checked
  int64_t position_of(const Window& window) const { return store_->begin_of(window.record) + window.begin; }

 private:
  int64_t windows_of(int64_t record) const;
  Window cut(int64_t record, int64_t k) const;
  std::shared_ptr<const TokenStore> store_;
  SequenceLimit limit_;
  WindowCounts counts_;
  std::vector<int64_t> before_;   // windows before every kBlock-th record: 8 bytes per 64 records
};

}  // namespace ballast
