#pragma once
// Keys and values of the tokens that generation has seen, per layer and sequence, appended in place and read in place.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/model/segments.h"

namespace ballast {

class KvCache {
 public:
  // Room for `capacity` tokens of each sequence: 2 * layers * sequences * capacity * kv_width elements.
  // Throws Error(Usage) if the capacity exceeds the model's positions.
  KvCache(const ModelConfig& config, int64_t sequences, int64_t capacity, at::ScalarType dtype);

  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  int64_t bytes() const;
  void clear();  // forgets every token, keeps the memory

  // A forward pass of new tokens: `slots[s]` is the cached sequence that sequence s of the batch continues.
  // attend() stores the layer's k and v and attends over the cached and the new keys; advance() counts the tokens in
  // once all layers have run.
  void attend(const SegmentCall& call, std::span<const int64_t> slots, const at::Tensor& q, const at::Tensor& k,
              const at::Tensor& v, at::Tensor& o, at::Tensor& lse);
  void advance(const MicroBatch& batch, std::span<const int64_t> slots);

 private:
  int64_t capacity_;
  std::vector<int64_t> lengths_;
  std::vector<at::Tensor> keys_, values_;  // per layer [sequences, capacity, kv_width]
};

}  // namespace ballast
