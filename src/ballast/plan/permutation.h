#pragma once
// A keyed permutation of 0..n-1 in constant memory: the shuffled order of an epoch, evaluated at any index without a list.
#include <cstdint>
#include <vector>

namespace ballast {

// Swap-or-not shuffle (Hoang, Morris, Rogaway 2012, arXiv:1208.1176): in round i with key K_i, x and its partner (K_i - x) mod n
// change places if a bit hashed from (i, max of the two) is set. A bijection for every n, small ones included, whatever the hash.
class Permutation {
 public:
  // n >= 1. Equal (n, seed, epoch) give equal orders on every machine.
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);
  int64_t operator()(int64_t index) const;   // 0 <= index < n
  int64_t size() const { return n_; }

 private:
  int64_t n_;
  uint64_t key_;
  std::vector<int64_t> rounds_;   // K_i
};

}  // namespace ballast
