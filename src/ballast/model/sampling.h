#pragma once
// Choosing the next token from logits: greedy, or drawn with temperature, top-k and top-p from counter-based random
// numbers.
#include <cstdint>
#include <span>

namespace ballast {

struct SamplingOptions {
  double temperature = 1.0;  // 0 = greedy
  int64_t top_k = 0;         // the k likeliest tokens; 0 = all
  double top_p = 1.0;  // then the smallest set of the likeliest tokens that holds this probability (arXiv:1904.09751)
};

// Throws Error(Usage) naming the option that is out of range.
void check_sampling(const SamplingOptions& options);

// In [0, 1): a function of the seed, the sequence's index and the token's position alone.
double uniform_at(uint64_t seed, uint64_t sequence, int64_t position);

// The token that `uniform` in [0, 1) falls on. Equal logits are ordered by token id. Throws Error(Numerical) if a logit
// is NaN or +infinity, or all are -infinity.
int64_t choose_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

}  // namespace ballast
