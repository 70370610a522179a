#pragma once
// What every kernel of the block codecs shares, so that all of them give the same bits: a block's header made from its
// range, and the random numbers of stochastic rounding.
//
// With L the largest code (127, 7; asymmetric 255, 15) and x the numbers of a block:
//   symmetric   step = absmax / L, base = -0, code = round(x / step) in -L..L
//   asymmetric  step = (max - min) / L, base = min, code = round((x - min) / step) in 0..L
//   decoded     fma(code, step, base), rounded once; base -0 makes it the plain product
#include <cstdint>

#include "ballast/codec/codec.h"

namespace ballast {

// Seen over a block's numbers: the greatest magnitude as bits (NaN and infinities are the greatest of all as integers,
// so no comparison loses them), and, for asymmetric codecs only, the least and the greatest number.
struct BlockRange {
  uint32_t magnitude = 0;
  float low = 0, high = 0;
};

struct BlockScale {
  enum class Kind {
    Constant,   // all codes 0
    Usual,      // code = round((x - base) * inverse)
    Careful,    // `inverse` or x - base could overflow: codes are made in double precision
    NotFinite,  // step is NaN, and with it every decoded number
  };
  Kind kind = Kind::Constant;
  float base = 0, step = 0, inverse = 0;
};

constexpr int32_t largest_code(int bits, bool symmetric) { return symmetric ? (1 << (bits - 1)) - 1 : (1 << bits) - 1; }

BlockScale block_scale(const BlockRange& range, int bits, bool symmetric);

// The stream of one key over 2^32 consecutive counters; element `index` has counter index mod 2^32.
struct DrawSeed {
  uint32_t first = 0, second = 0;
};
inline DrawSeed draw_seed(uint64_t key, uint64_t index) {
  uint64_t z = key + (index >> 32) * 0x9e3779b97f4a7c15ull + 0x9e3779b97f4a7c15ull;  // splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return {static_cast<uint32_t>(z), static_cast<uint32_t>(z >> 32)};
}
constexpr uint32_t kDrawMultiplier1 = 0x7feb352du, kDrawMultiplier2 = 0x846ca68bu;
// Uniform on the multiples of 2^-24 in [0, 1): the upper bits of a 32-bit mix of counter and seed.
inline float drawn_fraction(DrawSeed seed, uint32_t counter) {
  uint32_t x = counter ^ seed.first;
  x = (x ^ (x >> 16)) * kDrawMultiplier1 + seed.second;
  x = (x ^ (x >> 15)) * kDrawMultiplier2;
  return static_cast<float>(x >> 8) * 0x1p-24f;
}

}  // namespace ballast
