// int8 and int4 by value: records made by hand, bounds, exact ends, odd blocks, sizes, and the laws of codec.h. Every
// kernel that this CPU can run is tested, not only the one that codec_for takes.
#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "ballast/base/error.h"
#include "codec/block_cases.h"

namespace ballast {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

std::vector<uint8_t> encoded_by(const Codec& codec, const std::vector<float>& values, Draw draw = {},
                                bool* finite = nullptr) {
  std::vector<uint8_t> record(static_cast<size_t>(codec.encoded_bytes(std::ssize(values))));
  const bool answer = codec.encode(values.data(), std::ssize(values), record.data(), draw);
  if (finite != nullptr) *finite = answer;
  return record;
}

std::vector<float> decoded_by(const Codec& codec, const std::vector<uint8_t>& record, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements), 12345.0f);
  codec.decode(record.data(), elements, values.data());
  return values;
}

float float_at(const std::vector<uint8_t>& record, int64_t byte) {
  float value;
  std::memcpy(&value, record.data() + byte, 4);
  return value;
}

class BlockCodecTest : public testing::TestWithParam<BlockCase> {
 protected:
  const CodecSpec& spec() const { return GetParam().spec; }
  const Codec& codec() const { return *codec_; }
  int bits() const { return spec().name == "int8" ? 8 : 4; }
  int64_t header() const { return spec().symmetric ? 4 : 8; }
  int64_t record() const { return spec().encoded_bytes(spec().block); }
  float step(const std::vector<uint8_t>& encoded, int64_t block) const {
    return float_at(encoded, block * record() + header() - 4);
  }

 private:
  const std::unique_ptr<Codec> codec_ = make_block_codec(GetParam().spec, GetParam().kernels);
};

TEST_P(BlockCodecTest, KeepsEveryNumberWithinItsStep) {
  for (const float size : {1.0f, 1e-30f, 3e37f, 2e-38f, 1e-41f}) {
    std::vector<float> values = random_values(600, 3);
    for (float& value : values) value *= size;
    const std::vector<uint8_t> encoded = encoded_by(codec(), values, {99, 0});
    const std::vector<float> back = decoded_by(codec(), encoded, std::ssize(values));
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const double width = step(encoded, i / spec().block), value = values[static_cast<size_t>(i)];
      ASSERT_GT(width, 0);
      // Beside the rounding: code = x * fp32 inverse is off by up to 3 units of 2^-24 of at most 255, decoding by half
      // a unit of the result, which is below one denormal unit for the smallest.
      const double slack = width * 255 * 0x1p-22 + std::fabs(value) * 0x1p-23 + 0x1p-149;
      const double off = std::fabs(back[static_cast<size_t>(i)] - value);
      if (spec().stochastic) {
        ASSERT_LT(off, width + slack) << i << " " << size;
      } else {
        ASSERT_LE(off, width / 2 + slack) << i << " " << size;
      }
    }
  }
}

TEST_P(BlockCodecTest, GivesTheEndsBack) {
  const std::vector<float> ends{1.0f, 0.1f, 3.0f, 127.0f, 7.0f, 1e-20f, 5e-39f, 1e-44f, 1e38f, FLT_MAX, FLT_MIN};
  for (const float end : ends) {
    std::vector<float> values(static_cast<size_t>(spec().block), 0.25f * end);
    values[2] = end;
    values[5] = -end;
    const std::vector<float> back = decoded_by(codec(), encoded_by(codec(), values), spec().block);
    for (const size_t i : {2u, 5u}) {
      // A step below the normal range is rounded up by less than one denormal unit, and taken up to L times.
      const double tolerance = std::fabs(values[i]) * 0x1p-22 + largest_code(bits(), spec().symmetric) * 0x1p-149;
      ASSERT_NEAR(back[i], values[i], tolerance) << end;
      ASSERT_TRUE(std::isfinite(back[i]));
    }
  }
}

TEST_P(BlockCodecTest, ZerosAreZerosAndConstantsStay) {
  for (const float zero : {0.0f, -0.0f}) {
    const std::vector<float> zeros(static_cast<size_t>(spec().block + 3), zero);
    const std::vector<uint8_t> encoded = encoded_by(codec(), zeros, {1, 1});
    for (const uint8_t byte : encoded) EXPECT_EQ(byte & 0x7f, 0);
    for (const float value : decoded_by(codec(), encoded, std::ssize(zeros))) {
      ASSERT_EQ(std::bit_cast<uint32_t>(value), 0u);
    }
  }
  if (spec().symmetric) return;
  for (const float constant : {1.1f, -3e38f, 1e-42f}) {
    const std::vector<float> same(static_cast<size_t>(spec().block), constant);
    EXPECT_EQ(decoded_by(codec(), encoded_by(codec(), same), spec().block), same);
  }
}

TEST_P(BlockCodecTest, ANonFiniteNumberSpoilsItsBlockVisibly) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity, std::bit_cast<float>(0x7f800001u)}) {
    for (const int64_t place : {int64_t{0}, int64_t{1}, spec().block - 1}) {
      const int64_t elements = 2 * spec().block + 5;
      std::vector<float> values = random_values(elements, 5);
      values[static_cast<size_t>(spec().block + place)] = bad;
      bool finite = true;
      const std::vector<uint8_t> encoded = encoded_by(codec(), values, {}, &finite);
      EXPECT_FALSE(finite);
      const std::vector<float> back = decoded_by(codec(), encoded, elements);
      for (int64_t i = 0; i < elements; ++i) {
        const bool spoilt = i / spec().block == 1;
        ASSERT_EQ(std::isnan(back[static_cast<size_t>(i)]), spoilt) << i;
      }
      std::vector<float> sum(static_cast<size_t>(elements), 1.0f);
      codec().decode_add(encoded.data(), elements, sum.data());
      EXPECT_TRUE(std::isnan(sum[static_cast<size_t>(spec().block)]));
      EXPECT_FALSE(std::isnan(sum[0]));
    }
    bool finite = true;  // alone in a short last block
    std::vector<float> values = random_values(spec().block + 1, 5);
    values.back() = bad;
    encoded_by(codec(), values, {}, &finite);
    EXPECT_FALSE(finite);
  }
  bool finite = false;
  encoded_by(codec(), {FLT_MAX, -FLT_MAX, 1e-45f, -0.0f}, {}, &finite);
  EXPECT_TRUE(finite);
}

TEST_P(BlockCodecTest, WritesAndReadsExactlyItsBytesAtAnyAddressAndConcatenates) {
  const std::vector<float> values = random_values(700, 11);
  for (int64_t elements = 0; elements <= 600; ++elements) {
    const size_t bytes = static_cast<size_t>(codec().encoded_bytes(elements)),
                 offset = static_cast<size_t>(elements) % 7;
    const int64_t blocks = (elements + spec().block - 1) / spec().block;
    ASSERT_EQ(bytes, static_cast<size_t>(blocks * (header() + spec().block * bits() / 8)));
    std::vector<uint8_t> whole(offset + bytes + 16, 0xab), parts(offset + bytes + 16, 0xab);
    ASSERT_TRUE(codec().encode(values.data(), elements, whole.data() + offset, {7, 40}));
    const int64_t first = blocks / 2 * spec().block;
    codec().encode(values.data(), first, parts.data() + offset, {7, 40});
    codec().encode(values.data() + first, elements - first,
                   parts.data() + offset + static_cast<size_t>(codec().encoded_bytes(first)), {7, 40 + first});
    ASSERT_EQ(whole, parts) << elements;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (i < offset || i >= offset + bytes) {
        ASSERT_EQ(whole[i], 0xab) << "wrote outside at " << elements;
      }
    }
    // Exactly sized copies, so that a sanitizer sees a read beyond them.
    const std::vector<uint8_t> exact(whole.begin() + static_cast<std::ptrdiff_t>(offset),
                                     whole.begin() + static_cast<std::ptrdiff_t>(offset + bytes));
    std::vector<float> back(static_cast<size_t>(elements) + 4, -1.5f), sum(back), at_offset(back);
    codec().decode(exact.data(), elements, back.data());
    codec().decode(whole.data() + offset, elements, at_offset.data());
    codec().decode_add(exact.data(), elements, sum.data());
    ASSERT_EQ(back, at_offset);
    for (size_t i = 0; i < back.size(); ++i) {
      if (i >= static_cast<size_t>(elements)) {
        ASSERT_EQ(back[i], -1.5f);
        ASSERT_EQ(sum[i], -1.5f);
      } else {
        ASSERT_EQ(sum[i], -1.5f + back[i]);
      }
    }
  }
}

TEST_P(BlockCodecTest, CodesPastTheRunAreZero) {
  const std::vector<float> values{5.0f, 6.0f, 7.0f};
  const std::vector<uint8_t> encoded = encoded_by(codec(), values);
  for (int64_t i = header() + (3 * bits() + 7) / 8; i < record(); ++i) ASSERT_EQ(encoded[static_cast<size_t>(i)], 0);
  if (bits() == 4) {
    EXPECT_EQ(encoded[static_cast<size_t>(header() + 1)] >> 4, 0);
  }
}

TEST_P(BlockCodecTest, SymmetricCodesSurviveASecondRoundTrip) {
  // Stochastic rounding of int8 draws where rounding errors have moved a number off its code by half a unit of 2^-15;
  // the codes of int4 are too small for that.
  if (!spec().symmetric || (spec().stochastic && bits() == 8)) return;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<float> values = random_values(3 * spec().block, seed);
    const std::vector<uint8_t> once = encoded_by(codec(), values, {seed, 0});
    const std::vector<float> back = decoded_by(codec(), once, std::ssize(values));
    const std::vector<uint8_t> twice = encoded_by(codec(), back, {seed + 1, 0});
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t codes = b * record() + header();
      ASSERT_EQ(std::memcmp(once.data() + codes, twice.data() + codes, static_cast<size_t>(record() - header())), 0);
      const int64_t off = int64_t{std::bit_cast<uint32_t>(step(once, b))} - std::bit_cast<uint32_t>(step(twice, b));
      ASSERT_LE(std::abs(off), 1) << "the step moved by more than its last bit";
    }
  }
}

TEST_P(BlockCodecTest, StochasticRoundingIsUnbiased) {
  if (!spec().stochastic) return;
  std::vector<float> values = random_values(spec().block, 21);
  values[0] = 1.0f, values[1] = -1.0f;  // the ends fix the step
  constexpr int kKeys = 4000;
  std::vector<double> mean(values.size());
  double width = 0, neighbours = 0, halves = 0;  // sums of products of two errors in one encoding
  int64_t neighbour_count = 0, half_count = 0;
  for (int key = 0; key < kKeys; ++key) {
    const Draw draw{static_cast<uint64_t>(key) * 77 + 5, (int64_t{1} << 33) + 1000};
    const std::vector<uint8_t> encoded = encoded_by(codec(), values, draw);
    const std::vector<float> back = decoded_by(codec(), encoded, spec().block);
    width = step(encoded, 0);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += back[i] / kKeys;
    const auto error = [&](size_t i) { return (double{back[i]} - double{values[i]}) / width; };
    for (size_t i = 2; i + 1 < mean.size(); ++i, ++neighbour_count) neighbours += error(i) * error(i + 1);
    for (size_t i = 2; i + 16 < mean.size(); ++i) {
      if (i / 16 % 2 == 0) halves += error(i) * error(i + 16), ++half_count;
    }
  }
  // An error's deviation is at most half a step, so that of a product of two independent ones at most a quarter.
  EXPECT_LT(std::fabs(neighbours), 5 * std::sqrt(static_cast<double>(neighbour_count)) / 4);
  EXPECT_LE(std::fabs(halves), 5 * std::sqrt(static_cast<double>(half_count)) / 4)
      << "the halves of one mix hang together";
  // A two-valued draw has a deviation of at most width / 2; 5.5 deviations of the mean fail once in 2e7 numbers.
  const double bound = 5.5 * width / 2 / std::sqrt(kKeys);
  double total = 0;
  for (size_t i = 0; i < mean.size(); ++i) {
    ASSERT_NEAR(mean[i], values[i], bound) << i;
    total += mean[i] - values[i];
  }
  EXPECT_LT(std::fabs(total), bound * std::sqrt(static_cast<double>(mean.size())))
      << "draws of one block hang together";
}

TEST_P(BlockCodecTest, StochasticRoundingLeavesWholeStepsAlone) {
  if (!spec().stochastic) return;
  const int32_t largest = largest_code(bits(), spec().symmetric), least = spec().symmetric ? -largest : 0;
  std::mt19937 random(9);
  for (uint64_t key = 0; key < 300; ++key) {
    std::vector<float> values(static_cast<size_t>(spec().block));
    for (float& value : values) {
      value = static_cast<float>(least + static_cast<int32_t>(random() % static_cast<uint32_t>(largest - least + 1)));
    }
    values[1] = static_cast<float>(least), values[4] = static_cast<float>(largest);
    for (float& value : values) value = value * 0.25f - (spec().symmetric ? 0 : 3);
    ASSERT_EQ(decoded_by(codec(), encoded_by(codec(), values, {key, 0}), spec().block), values);
  }
}

TEST_P(BlockCodecTest, StochasticEndsStayWithinTheCodes) {
  // The ends are whole steps up to the rounding of the inverse: they may not be drawn past the last code.
  if (!spec().stochastic) return;
  std::mt19937 random(10);
  for (uint64_t key = 0; key < 3000; ++key) {
    const float end = std::bit_cast<float>(0x3f800000u + static_cast<uint32_t>(random()) % 0x800000u);
    std::vector<float> values(static_cast<size_t>(spec().block), end);
    for (size_t i = 0; i < values.size(); i += 2) values[i] = -end;
    const std::vector<float> back = decoded_by(codec(), encoded_by(codec(), values, {key, 0}), spec().block);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(back[i], values[i], end * 0x1p-21) << key;
  }
}

TEST_P(BlockCodecTest, DrawsDependOnKeyAndPlaceOnly) {
  if (!spec().stochastic) return;
  const std::vector<float> values(static_cast<size_t>(spec().block), 0.3f);
  std::vector<float> framed = values;
  framed[0] = 1.0f, framed[1] = -1.0f;
  const auto at = [&](uint64_t key, int64_t first) { return encoded_by(codec(), framed, {key, first}); };
  EXPECT_EQ(at(1, 0), at(1, 0));
  if (spec().block < 256) return;  // a small block may come out alike by chance
  EXPECT_NE(at(1, 0), at(2, 0));
  EXPECT_NE(at(1, 0), at(1, spec().block));
  EXPECT_NE(at(1, 0), at(1, int64_t{1} << 32));
}

INSTANTIATE_TEST_SUITE_P(Kernels, BlockCodecTest, testing::ValuesIn(block_cases()),
                         [](const auto& info) { return name_of_case(info.param); });

TEST(BlockCodec, RecordsMadeByHand) {
  // absmax 127 * 0.5: step 0.5, codes are twice the numbers, ties to even.
  const CodecSpec int8{.name = "int8", .block = 8};
  const std::vector<uint8_t> a =
      encoded_by(codec_for(int8), {63.5f, -63.5f, 0.5f, -0.5f, 0.25f, 0.75f, -0.25f, 1.0f, 127.0f});
  EXPECT_EQ(a, (std::vector<uint8_t>{0, 0, 0,    0x3f, 127, 0x81, 1, 0xff, 0, 2, 0, 2,  //
                                     0, 0, 0x80, 0x3f, 127, 0,    0, 0,    0, 0, 0, 0}));
  const CodecSpec int4{.name = "int4", .block = 8};
  const std::vector<uint8_t> b = encoded_by(codec_for(int4), {7, -7, 1, -1, 2.5f, 3.5f, 0, 3});
  EXPECT_EQ(b, (std::vector<uint8_t>{0, 0, 0x80, 0x3f, 0x97, 0xf1, 0x42, 0x30}));
  // minimum 10, step 1, codes from the minimum.
  const CodecSpec asymmetric4{.name = "int4", .block = 8, .symmetric = false};
  const std::vector<uint8_t> c = encoded_by(codec_for(asymmetric4), {10, 25, 11, 12.5f, 13.5f, 24, 20, 10});
  EXPECT_EQ(c, (std::vector<uint8_t>{0, 0, 0x20, 0x41, 0, 0, 0x80, 0x3f, 0xf0, 0x21, 0xe4, 0x0a}));
  const CodecSpec asymmetric8{.name = "int8", .block = 8, .symmetric = false};
  const std::vector<uint8_t> d = encoded_by(codec_for(asymmetric8), {-1, 254, 0, 127});
  EXPECT_EQ(d, (std::vector<uint8_t>{0, 0, 0x80, 0xbf, 0, 0, 0x80, 0x3f, 0, 255, 1, 128, 0, 0, 0, 0}));
}

TEST(BlockCodec, Int4KeepsPlusAbsmax) {
  // With scale = 2 * absmax / 16 the largest number would need code 8, be clamped to 7 and come back an eighth low.
  const Codec& codec = codec_for(parse_codec("int4"));
  for (const float absmax : {1.0f, 0.37f, 7.0f, 1e-6f, 12345.678f}) {
    std::vector<float> values(256, 0.1f * absmax);
    values[17] = absmax;
    values[100] = -absmax;
    const std::vector<float> back = decoded_by(codec, encoded_by(codec, values), 256);
    EXPECT_FLOAT_EQ(back[17], absmax);
    EXPECT_FLOAT_EQ(back[100], -absmax);
    EXPECT_EQ(back[17], -back[100]);
  }
}

TEST(BlockCodec, LargeResultsAreStreamedWithTheSameBits) {
  const int64_t elements = (int64_t{5} << 20) + 77;
  const std::vector<float> values = random_values(elements, 2);
  for (const char* name : {"int8", "int4"}) {
    const Codec& codec = codec_for(parse_codec(name));
    const std::vector<uint8_t> encoded = encoded_by(codec, values);
    std::vector<float> room(static_cast<size_t>(elements) + 9);
    float* aligned = room.data();
    while (reinterpret_cast<uintptr_t>(aligned) % kStreamAlignment != 0) ++aligned;
    codec.decode(encoded.data(), elements, aligned);
    std::vector<float> one_by_one(256);
    for (int64_t first = 0; first < elements; first += 256) {
      const int64_t count = std::min<int64_t>(256, elements - first);
      codec.decode(encoded.data() + codec.encoded_bytes(first), count, one_by_one.data());
      ASSERT_EQ(std::memcmp(aligned + first, one_by_one.data(), static_cast<size_t>(count) * 4), 0) << first;
    }
  }
}

TEST(BlockCodec, RegistryKeepsOneCodecForASpec) {
  for (const BlockCase& one : block_cases()) {
    const Codec& codec = codec_for(one.spec);
    EXPECT_EQ(codec.spec(), one.spec);
    EXPECT_EQ(&codec, &codec_for(one.spec));
  }
  for (const CodecSpec& bad : {CodecSpec{"int8", 1}, CodecSpec{"int4", 12}, CodecSpec{"int8", 131072}}) {
    try {
      codec_for(bad);
      FAIL() << bad.block;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find("multiple of 8"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ballast
