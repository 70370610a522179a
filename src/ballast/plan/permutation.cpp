#include "ballast/plan/permutation.h"

#include <algorithm>
#include <bit>

#include "ballast/base/check.h"

namespace ballast {

namespace {

// The finaliser of SplitMix64: a bijection of 64 bits whose every output bit depends on every input bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch) : n_(n), key_(mix(mix(seed) ^ mix(~epoch))) {
  BALLAST_CHECK(n >= 1, "n = {}", n);
  // A few rounds per bit of n mix the order; the constant serves tiny n, where a round moves little.
  const int rounds = 48 + 4 * static_cast<int>(std::bit_width(static_cast<uint64_t>(n)));
  rounds_.reserve(static_cast<size_t>(rounds));
  for (int i = 0; i < rounds; ++i) {
    // Multiply-high maps 64 hashed bits to [0, n) with a bias below n / 2^64.
    const uint64_t hashed = mix(key_ + static_cast<uint64_t>(i));
    rounds_.push_back(static_cast<int64_t>((static_cast<unsigned __int128>(hashed) * static_cast<uint64_t>(n)) >> 64));
  }
}

int64_t Permutation::operator()(int64_t index) const {
  BALLAST_CHECK(index >= 0 && index < n_, "index {} of {}", index, n_);
  int64_t x = index;
  for (size_t i = 0; i < rounds_.size(); ++i) {
    int64_t partner = rounds_[i] - x;
    if (partner < 0) partner += n_;
    const uint64_t higher = static_cast<uint64_t>(std::max(x, partner));
    if (mix(key_ ^ (higher << 8) ^ static_cast<uint64_t>(i)) & 1) x = partner;
  }
  return x;
}

}  // namespace ballast
