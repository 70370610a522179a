#pragma once
// All data of a run as samples: sources, their stores, the sequence limit, mixture weights. What selection (plan/) asks for lengths
// and batch assembly (batch.h) for tokens.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/data/prepare.h"
#include "ballast/data/sample_windows.h"
#include "ballast/layout/selection.h"

namespace ballast {

struct DataSource {
  std::vector<std::string> paths;   // records (prepared into one store), token stores (.store), llm.c or Megatron (.bin, .idx)
  std::optional<double> weight;     // share of the trained tokens; for all sources or for none
};

// Sample keys: the store's number in the high bits, the position of the first input token in its store in the low ones. They depend
// on the order of the sources only: not on world size, step or sequence limit.
constexpr int kPositionBits = 50;

class DataSet : public SampleIndex {
 public:
  struct Stream {
    std::vector<std::shared_ptr<const TokenStore>> stores;
    double weight = 1;
  };
  // Throws Error(Data) where a stream has no sample.
  DataSet(const std::vector<Stream>& streams, const SequenceLimit& limit, int32_t end_of_text);

  int64_t streams() const override { return static_cast<int64_t>(streams_.size()); }
  double weight(int64_t stream) const override { return streams_[static_cast<size_t>(stream)].weight; }
  int64_t samples(int64_t stream) const override { return streams_[static_cast<size_t>(stream)].before.back(); }
  SampleRef sample(int64_t stream, int64_t index) const override;
  int64_t trained_targets(uint64_t sample) const override;
  int64_t tokens_per_epoch() const override { return counts_.tokens; }
  uint64_t fingerprint() const override;

  // For inputs [begin, begin + length) of the sample: token ids, and targets with -1 where the loss does not count. Either may be null.
  void read(uint64_t sample, int64_t begin, int64_t length, int64_t* ids, int64_t* targets) const;
  int64_t length(uint64_t sample) const;

  const WindowCounts& counts() const { return counts_; }
  std::string report() const;        // the counts in words; says what was split, cut, dropped or is too short
  int32_t end_of_text() const { return end_of_text_; }
  int64_t highest_id() const;
  // Throws Error(Data) naming the store, if any id is not below the model's vocabulary.
  void check_vocabulary(int64_t model_vocab) const;
  void verify() const;               // reads every byte of every store

 private:
  struct Part {   // a stream's stores are windows_[first, first + before.size() - 1)
    double weight;
    size_t first;
    std::vector<int64_t> before;   // samples before each store, then all
  };
  const SampleWindows& windows_of(uint64_t sample) const;
  std::vector<SampleWindows> windows_;
  std::vector<Part> streams_;
  SequenceLimit limit_;
  WindowCounts counts_;
  int32_t end_of_text_;
};

struct DataOptions {
  RecordFormat format;
  SequenceLimit limit;
  PrepareOptions prepare;
};

// Prepares what is missing and opens everything. Without weights all sources are one stream: an epoch holds every sample once.
// Throws Error(Usage) for weights that are not positive or not given for all; Error(Data), Error(CorruptFile) as prepare and open do.
std::unique_ptr<DataSet> open_data(const std::vector<DataSource>& sources, const Tokenizer& tokenizer, const DataOptions& options);

}  // namespace ballast
