// Every kernel of this CPU against the scalar reference, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "codec/block_cases.h"

namespace ballast {
namespace {

// Blocks of all kinds: every exponent, mixed signs, ties, zeros, denormals, huge ones, NaN and infinities.
std::vector<float> nasty_blocks(const CodecSpec& spec, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t block = spec.block;
  std::vector<float> values = random_values(40 * block + static_cast<int64_t>(random() % 600), seed);
  const auto fill = [&](int64_t b, auto make) {
    for (int64_t i = b * block; i < (b + 1) * block; ++i) values[static_cast<size_t>(i)] = make();
  };
  const auto any = [&] { return static_cast<uint32_t>(random()); };
  for (int64_t b = 0; b < 30; ++b) {
    if (b < 12) {  // one exponent each, from the least
      const uint32_t exponent = static_cast<uint32_t>(b * 23 + any() % 20) << 23;
      fill(b, [&] { return std::bit_cast<float>(std::min((any() & 0x807fffffu) | exponent, 0xff7fffffu)); });
    } else if (b < 16) {  // any finite
      fill(b, [&] { return std::bit_cast<float>(any() & 0xbfffffffu); });
    } else if (b == 16) {  // ties of int8 and int4
      fill(b, [&] { return static_cast<float>(static_cast<int32_t>(any() % 255) - 127) / 2; });
      values[static_cast<size_t>(b * block)] = 127;
    } else if (b == 17) {
      fill(b, [&] { return any() % 2 ? 0.0f : -0.0f; });
    } else if (b == 18) {
      fill(b, [&] { return any() % 2 ? FLT_MAX : -FLT_MAX; });
    } else if (b == 19) {
      fill(b, [&] { return std::bit_cast<float>(any() & 0x80000007u); });
    } else if (b == 20) {  // a narrow range far from zero
      fill(b, [&] { return 1000.0f + static_cast<float>(any() % 1000) * 1e-4f; });
    } else if (b == 21) {
      fill(b, [&] { return std::bit_cast<float>(any()); });
    } else if (b < 26) {
      values[static_cast<size_t>(b * block + any() % block)] = std::bit_cast<float>(b == 22   ? 0x7fc00000u
                                                                                    : b == 23 ? 0xff800000u
                                                                                    : b == 24 ? 0x7f800001u
                                                                                              : 0x7f800000u);
    }
  }
  return values;
}

class BlockKernelsTest : public testing::TestWithParam<BlockCase> {};

TEST_P(BlockKernelsTest, GiveTheBitsOfTheScalarReference) {
  const CodecSpec& spec = GetParam().spec;
  const auto codec = make_block_codec(spec, GetParam().kernels);
  const auto reference = make_block_codec(spec, scalar_block_kernels(spec));
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> values = nasty_blocks(spec, seed);
    const int64_t elements = std::ssize(values);
    const size_t bytes = static_cast<size_t>(spec.encoded_bytes(elements));
    // The last seeds cross 2^32 and begin off any multiple.
    const Draw draw{seed * 0x123456789ull, seed < 10 ? seed * 1001 : (int64_t{1} << 32) - 3000 - seed};
    std::vector<uint8_t> a(bytes), b(bytes);
    ASSERT_EQ(codec->encode(values.data(), elements, a.data(), draw),
              reference->encode(values.data(), elements, b.data(), draw));
    ASSERT_EQ(a, b) << "seed " << seed;
    std::vector<float> x(values.size()), y(values.size()), sum_x = values, sum_y = values;
    codec->decode(a.data(), elements, x.data());
    reference->decode(a.data(), elements, y.data());
    codec->decode_add(a.data(), elements, sum_x.data());
    reference->decode_add(a.data(), elements, sum_y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(std::bit_cast<uint32_t>(x[i]) == std::bit_cast<uint32_t>(y[i]) || (x[i] != x[i] && y[i] != y[i]));
      ASSERT_TRUE(std::bit_cast<uint32_t>(sum_x[i]) == std::bit_cast<uint32_t>(sum_y[i]) ||
                  (sum_x[i] != sum_x[i] && sum_y[i] != sum_y[i]));
    }
  }
}

TEST_P(BlockKernelsTest, DecodeAnyBytesAsTheReferenceDoes) {
  const CodecSpec& spec = GetParam().spec;
  const auto codec = make_block_codec(spec, GetParam().kernels);
  const auto reference = make_block_codec(spec, scalar_block_kernels(spec));
  std::mt19937 random(4);
  for (int turn = 0; turn < 50; ++turn) {
    const int64_t elements = 1 + static_cast<int64_t>(random() % 700);
    std::vector<uint8_t> record(static_cast<size_t>(spec.encoded_bytes(elements)));
    for (uint8_t& byte : record) byte = static_cast<uint8_t>(random());
    std::vector<float> x(static_cast<size_t>(elements)), y(x);
    codec->decode(record.data(), elements, x.data());
    reference->decode(record.data(), elements, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(std::bit_cast<uint32_t>(x[i]) == std::bit_cast<uint32_t>(y[i]) || (x[i] != x[i] && y[i] != y[i]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, BlockKernelsTest, testing::ValuesIn(block_cases()),
                         [](const auto& info) { return name_of_case(info.param); });

// The draws of `count` elements in blocks of 256, as multiples of 2^-bits in [0, 1).
std::vector<double> drawn_fractions(int unit_bits, uint64_t key, uint64_t first, int64_t count) {
  std::vector<double> fractions;
  for (uint64_t b = 0; std::ssize(fractions) < count; b += 256) {
    const DrawSeed seed = draw_seed(key, first + b);
    for (uint32_t position = 0; position < 256; ++position) {
      const uint32_t units = drawn_units(unit_bits, seed, static_cast<uint32_t>(first + b), position);
      fractions.push_back(std::ldexp(units, -unit_bits));
    }
  }
  return fractions;
}

TEST(BlockKernels, TheDrawsAreUniformDownToTheirLastBit) {
  constexpr int kBins = 64;
  constexpr int64_t kDraws = 1 << 17;
  for (const int unit_bits : {15, 16}) {
    for (const uint64_t key : {0ull, 1ull, 2ull, 0xffffffffffffffffull}) {
      const std::vector<double> fractions = drawn_fractions(unit_bits, key, 1 << 20, kDraws);
      // The first bits and the last, of the lower halves of the mixes and of the upper.
      std::vector<int> first[2], last[2];
      for (int half = 0; half < 2; ++half) first[half].resize(kBins), last[half].resize(kBins);
      for (size_t i = 0; i < fractions.size(); ++i) {
        ASSERT_TRUE(fractions[i] >= 0 && fractions[i] < 1);
        const size_t half = i / 16 % 2;
        ++first[half][static_cast<size_t>(fractions[i] * kBins)];
        ++last[half][static_cast<size_t>(std::ldexp(fractions[i], unit_bits)) % kBins];
      }
      for (const auto& bins : {first[0], first[1], last[0], last[1]}) {
        constexpr double expected = kDraws / 2.0 / kBins;
        double chi = 0;
        for (const int count : bins) chi += (count - expected) * (count - expected) / expected;
        EXPECT_LT(chi, 63 + 5 * std::sqrt(2 * 63.0)) << key;
      }
    }
  }
}

TEST(BlockKernels, TheDrawsOfNeighboursHalvesAndKeysAreUncorrelated) {
  constexpr int64_t kDraws = 1 << 17, kLags = 40;
  // A product of two independent draws, from their mean, has the deviation 1/12.
  const double bound = 5 * std::sqrt(double{kDraws}) / 12;
  const auto product = [&](const std::vector<double>& a, const std::vector<double>& b, int64_t lag) {
    double sum = 0;
    for (int64_t i = 0; i < kDraws; ++i) {
      sum += (a[static_cast<size_t>(i)] - 0.5) * (b[static_cast<size_t>(i + lag)] - 0.5);
    }
    return std::fabs(sum);
  };
  for (const int unit_bits : {15, 16}) {
    for (const uint64_t key : {0ull, 1ull, 2ull, 0xffffffffffffffffull}) {
      const std::vector<double> draws = drawn_fractions(unit_bits, key, 1 << 20, kDraws + 256);
      // Lag 16 is, for every other group of 16, that of the two halves of one mix.
      for (int64_t lag = 1; lag <= kLags; ++lag) EXPECT_LT(product(draws, draws, lag), bound) << key << " " << lag;
      double halves = 0;
      for (size_t i = 0; i < static_cast<size_t>(kDraws); ++i) {
        if (i / 16 % 2 == 0) halves += (draws[i] - 0.5) * (draws[i + 16] - 0.5);
      }
      EXPECT_LT(std::fabs(halves), bound / std::sqrt(2.0)) << key;
      const std::vector<double> next = drawn_fractions(unit_bits, key + 1, 1 << 20, kDraws);
      const std::vector<double> far = drawn_fractions(unit_bits, key, (uint64_t{1} << 32) + (1 << 20), kDraws);
      EXPECT_LT(product(draws, next, 0), bound) << key;
      EXPECT_LT(product(draws, far, 0), bound) << key;
    }
  }
}

TEST(BlockKernels, NoTwoElementsOfAStreamShareADraw) {
  // Counters of neighbouring blocks do not overlap, whatever the block: two elements have the same mix only as halves.
  const DrawSeed seed = draw_seed(3, 0);
  for (const uint32_t block : {8u, 16u, 24u, 40u, 64u, 256u}) {
    std::vector<uint32_t> seen[2];
    for (uint32_t i = 0; i < 4096; ++i) {
      // 32 bits of a mix, told apart by both of its halves.
      const uint32_t position = i % block, counter = i - position;
      const uint32_t low = drawn_units(16, seed, counter, position & ~16u);
      const uint32_t high = drawn_units(16, seed, counter, position | 16u);
      seen[position / 16 % 2].push_back(high << 16 | low);
    }
    for (std::vector<uint32_t>& mixes : seen) {
      std::sort(mixes.begin(), mixes.end());
      EXPECT_EQ(std::adjacent_find(mixes.begin(), mixes.end()), mixes.end()) << block;
    }
  }
}

}  // namespace
}  // namespace ballast
