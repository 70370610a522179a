#include "ballast/model/kv_cache.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/kernel/attention_cached.h"

namespace ballast {

KvCache::KvCache(const ModelConfig& config, int64_t sequences, int64_t capacity, at::ScalarType dtype)
    : capacity_(capacity), lengths_(static_cast<size_t>(sequences), 0) {
  if (capacity < 1 || capacity > config.max_positions)
    throw Error(ErrorKind::Usage, "the KV cache must hold at least one token and no more than the model has positions")
        .found(fmt::format("{} tokens", capacity))
        .expected(fmt::format("1 to {}", config.max_positions));
  const auto options = at::TensorOptions().dtype(dtype);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    keys_.push_back(at::empty({sequences, capacity, config.kv_width()}, options));
    values_.push_back(at::empty({sequences, capacity, config.kv_width()}, options));
  }
}

int64_t KvCache::bytes() const {
  int64_t sum = 0;
  for (const at::Tensor& tensor : keys_) sum += 2 * static_cast<int64_t>(tensor.nbytes());
  return sum;
}

void KvCache::clear() { std::fill(lengths_.begin(), lengths_.end(), 0); }

void KvCache::attend(const SegmentCall& call, std::span<const int64_t> slots, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, at::Tensor& o, at::Tensor& lse) {
  const std::vector<int64_t>& starts = call.batch.starts;
  BALLAST_CHECK(slots.size() + 1 == starts.size(), "{} slots for {} sequences", slots.size(), starts.size() - 1);
  const at::Tensor &keys = keys_[static_cast<size_t>(call.layer)], &values = values_[static_cast<size_t>(call.layer)];
  std::vector<kernel::CachedQueries> queries;
  bool fresh = true;
  for (size_t s = 0; s < slots.size(); ++s) {
    const int64_t slot = slots[s], past = length(slot), rows = starts[s + 1] - starts[s];
    BALLAST_CHECK(past + rows <= capacity_, "{} + {} tokens in a cache of {}", past, rows, capacity_);
    keys[slot].narrow(0, past, rows).copy_(k.narrow(0, starts[s], rows));
    values[slot].narrow(0, past, rows).copy_(v.narrow(0, starts[s], rows));
    queries.push_back({starts[s], rows, slot, past});
    fresh = fresh && past == 0;
  }
  // Without a past this is the attention of training, which works in tiles.
  if (fresh) return attend_forward(call, whole_sequences(call.batch), q, k, v, o, lse);
  const ModelConfig& config = call.config;
  kernel::attention_cached({config.heads, config.kv_heads, config.head_dim, config.window_of(call.layer)}, queries, q,
                           keys, values, o);
}

void KvCache::advance(const MicroBatch& batch, std::span<const int64_t> slots) {
  for (size_t s = 0; s < slots.size(); ++s)
    lengths_[static_cast<size_t>(slots[s])] += batch.starts[s + 1] - batch.starts[s];
}

}  // namespace ballast
