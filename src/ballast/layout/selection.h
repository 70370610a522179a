#pragma once
// Which samples a step trains: a pure function of the data's lengths, the seed and one global cursor. The world size appears
// nowhere, so every rank computes the same selection and a run may go on with another number of ranks.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/layout/layout.h"
#include "ballast/plan/permutation.h"

namespace ballast {

// What selection knows of the data: streams of samples in a fixed order. Without mixture weights there is one stream.
class SampleIndex {
 public:
  virtual ~SampleIndex() = default;
  virtual int64_t streams() const = 0;
  virtual double weight(int64_t stream) const = 0;            // share of the trained tokens, relative to the other streams
  virtual int64_t samples(int64_t stream) const = 0;          // >= 1
  virtual SampleRef sample(int64_t stream, int64_t index) const = 0;   // 0 <= index < samples(stream), in the order of the files
  virtual int64_t trained_targets(uint64_t sample) const = 0; // targets that count in the loss; reads no tokens
  virtual int64_t tokens_per_epoch() const = 0;               // input tokens of all samples of all streams
  virtual uint64_t fingerprint() const = 0;                   // equal on two ranks iff they see the same data, limits and weights
};

using Selection = std::vector<SampleRef>;
int64_t tokens_of(const Selection& selection);                                   // real input tokens
int64_t trained_of(const Selection& selection, const SampleIndex& index);        // what the sum of losses is divided by

// The position in the data: everything before it was trained. The same for every world size.
struct Cursor {
  struct Stream {
    int64_t epoch = 0, index = 0;   // the next sample is number `index` of that epoch's order
    int64_t trained = 0;            // trained targets given so far, what the mixture balances
    bool operator==(const Stream&) const = default;
  };
  std::vector<Stream> streams;
  int64_t steps = 0, samples = 0, tokens = 0;   // given so far, tokens = input tokens
  bool operator==(const Cursor&) const = default;

  // Completed epochs: those of the only stream; for a mixture whole multiples of tokens_per_epoch.
  int64_t epochs(const SampleIndex& index) const;
  std::string json() const;
  // Throws Error(CorruptFile) for anything json() does not write.
  static Cursor parse(const std::string& text);
};

class Selector {
 public:
  // batch_tokens >= 1. An empty cursor starts at the beginning. Throws Error(Data) for a cursor that does not fit the data
  // (streams, index beyond the end) and for data without samples.
  Selector(const SampleIndex& index, uint64_t seed, int64_t batch_tokens, Cursor start = {});

  // Samples in shuffled order until the next would exceed batch_tokens, at least one. A step flows on into the next epoch, so
  // no sample is lost and none comes twice within an epoch. Of several streams, the next sample comes from the one that is
  // furthest behind its weight in trained targets (the first of equals).
  Selection next();
  const Cursor& cursor() const { return cursor_; }

 private:
  int64_t stream_behind() const;
  const SampleIndex& index_;
  uint64_t seed_;
  int64_t batch_tokens_;
  Cursor cursor_;
  std::vector<Permutation> orders_;   // of each stream's present epoch
};

// Evaluation: every sample of every stream once, in file order. `next` counts samples over all streams and is moved on; an
// empty selection means the end.
Selection select_in_order(const SampleIndex& index, int64_t batch_tokens, int64_t& next);

}  // namespace ballast
