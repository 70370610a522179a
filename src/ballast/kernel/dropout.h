#pragma once
// Dropout by counter-based random numbers: whether an element is kept is a function of (seed, sample, position, place,
// channel), so no mask is stored, and neither rank nor place in a batch matters. Philox 4x32-10 (Salmon et al., SC 2011).
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace ballast::kernel {

// Four 32-bit random numbers of a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t key);

// The key of one sample's stream.
uint64_t stream_key(uint64_t seed, uint64_t sample);

// Where in the model the numbers are used: layer and one of its places.
struct DropoutPlace {
  enum Kind : uint32_t { Embedding = 0, Attention = 1, AfterAttention = 2, AfterMlp = 3 };
  Kind kind;
  int64_t layer;
  uint32_t code() const { return static_cast<uint32_t>(layer + 1) * 4 + static_cast<uint32_t>(kind); }
};

// Kept with probability 1 - p: a 32-bit number not below this.
uint32_t drop_threshold(double p);

// y[t, c] = keep(keys[t], positions[t], c) ? x[t, c] / (1 - p) : 0. [T, H]; y may be x. keys [T].
void dropout_rows(const at::Tensor& x, const at::Tensor& y, const uint64_t* keys, const int64_t* positions, DropoutPlace place, double p);

// factors[j] = keep(key, query, head, key position first + j) ? 1 / (1 - p) : 0, for one row of an attention matrix.
void dropout_factors(uint64_t key, int64_t query, int64_t head, int64_t first, int64_t count, DropoutPlace place, double p, float* factors);

}  // namespace ballast::kernel
