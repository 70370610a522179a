// One Philox block serves four neighbouring channels.
#include "ballast/kernel/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * c[0], b = uint64_t{0xcd9e8d57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b), static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(a)};
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return c;
}

uint64_t stream_key(uint64_t seed, uint64_t sample) { return mix(seed ^ mix(sample)); }

uint32_t drop_threshold(double p) { return static_cast<uint32_t>(std::min(4294967295.0, std::floor(p * 4294967296.0))); }

void dropout_rows(const at::Tensor& x, const at::Tensor& y, const uint64_t* keys, const int64_t* positions, DropoutPlace place, double p) {
  const int64_t rows = x.size(0), width = x.size(1);
  const uint32_t threshold = drop_threshold(p);
  const float scale = static_cast<float>(1.0 / (1.0 - p));
  with_element(x, [&]<class X>(X*) {
    with_element(y, [&]<class Y>(Y*) {
      const X* in = pointer<X>(x);
      Y* out = pointer<Y>(y);
      at::parallel_for(0, rows, rows_per_task(width * 8), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          for (int64_t c = 0; c < width; c += 4) {
            const auto bits = philox({static_cast<uint32_t>(c / 4), 0u, static_cast<uint32_t>(positions[t]), place.code()}, keys[t]);
            for (int64_t i = 0; i < std::min<int64_t>(4, width - c); ++i) {
              const int64_t at = t * width + c + i;
              store(out + at, bits[static_cast<size_t>(i)] >= threshold ? load(in + at) * scale : 0.0f);
            }
          }
        }
      });
    });
  });
}

void dropout_factors(uint64_t key, int64_t query, int64_t head, int64_t first, int64_t count, DropoutPlace place, double p, float* factors) {
  const uint32_t threshold = drop_threshold(p);
  const float scale = static_cast<float>(1.0 / (1.0 - p));
  for (int64_t block = first / 4; block * 4 < first + count; ++block) {
    const auto bits = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(head), static_cast<uint32_t>(query), place.code()}, key);
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t j = block * 4 + i - first;
      if (j >= 0 && j < count) factors[j] = bits[static_cast<size_t>(i)] >= threshold ? scale : 0.0f;
    }
  }
}

}  // namespace ballast::kernel
