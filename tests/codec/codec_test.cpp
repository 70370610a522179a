// Codecs by value: exhaustive over all two-byte patterns, against an independent rounding, and the vector kernels
// against the scalar ones.
#include "ballast/codec/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/codec/half.h"

namespace ballast {
namespace {

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// All finite values of a two-byte format in rising order of the positive half, to find neighbours without rounding
// arithmetic.
double value_of(bool bf16, uint16_t half) { return bf16 ? float_from_bf16(half) : float_from_fp16(half); }

// Round to nearest even by search among the format's values.
uint16_t nearest_even(bool bf16, float value) {
  const uint16_t infinity = bf16 ? 0x7f80 : 0x7c00;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  uint16_t low = 0, high = infinity;  // value_of(low) <= magnitude < value_of(high)
  if (std::isinf(value)) return sign | infinity;
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (value_of(bf16, middle) <= magnitude ? low : high) = middle;
  }
  const double below = value_of(bf16, low);
  // The value that would follow the largest finite one, were there no infinity.
  const double above = high == infinity ? (bf16 ? std::ldexp(1.0, 128) : 65536.0) : value_of(bf16, high);
  const double middle = below + (above - below) / 2;
  if (magnitude < middle) return sign | low;
  if (magnitude > middle) return sign | high;
  return static_cast<uint16_t>(sign | ((low & 1) ? high : low));
}

std::vector<float> nasty_values() {
  std::vector<float> values;
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));  // every exponent
  for (uint32_t half = 0; half < 0x10000;
       ++half) {  // each value of both formats, the ties between neighbours and one bit beside them
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(std::bit_cast<float>((half << 16) | low));
    const uint32_t single = bits(float_from_fp16(static_cast<uint16_t>(half)));
    for (const uint32_t offset : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu})
      values.push_back(std::bit_cast<float>(single + offset));
  }
  for (const float value : {0.f,
                            -0.f,
                            65504.f,
                            65519.996f,
                            65520.f,
                            65536.f,
                            0x1p-24f,
                            0x1p-25f,
                            0x1.8p-25f,
                            -0x1p-25f,
                            0x1p-26f,
                            0x1p-14f,
                            0x1.ffcp-15f,
                            0x1.ffep-15f,
                            1e-45f,
                            3.4028235e38f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::signaling_NaN()})
    values.push_back(value);
  return values;
}

class HalfTest : public testing::TestWithParam<bool> {};

TEST_P(HalfTest, RoundsToNearestEven) {
  const bool bf16 = GetParam();
  for (const float value : nasty_values()) {
    const uint16_t half = bf16 ? bf16_from_float(value) : fp16_from_float(value);
    const float back = bf16 ? float_from_bf16(half) : float_from_fp16(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(back)) << std::hex << bits(value);
      ASSERT_EQ(std::signbit(back), std::signbit(value));
    } else {
      ASSERT_EQ(half, nearest_even(bf16, value)) << std::hex << bits(value);
    }
  }
}

TEST_P(HalfTest, EveryPatternSurvivesARoundTrip) {
  const bool bf16 = GetParam();
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const uint16_t half = static_cast<uint16_t>(pattern);
    const float value = bf16 ? float_from_bf16(half) : float_from_fp16(half);
    const uint16_t back = bf16 ? bf16_from_float(value) : fp16_from_float(value);
    if (std::isnan(value)) {
      ASSERT_EQ(back, half | (bf16 ? 0x40 : 0x200));  // quieted, payload kept
    } else {
      ASSERT_EQ(back, half);
    }
  }
}

TEST_P(HalfTest, KernelsEqualTheScalarReferenceAtEveryLengthAndOffset) {
  const bool bf16 = GetParam();
  const Codec& codec = codec_for(parse_codec(bf16 ? "bf16" : "fp16"));
  const std::vector<float> values = nasty_values();
  std::vector<uint8_t> encoded(values.size() * 2 + 3);
  std::vector<float> decoded(values.size());
  auto check = [&](const float* source, int64_t elements, uint8_t* wire) {
    codec.encode(source, elements, wire);
    codec.decode(wire, elements, decoded.data());
    std::vector<float> sum(static_cast<size_t>(elements), 1.5f);
    codec.decode_add(wire, elements, sum.data());
    for (int64_t i = 0; i < elements; ++i) {
      const uint16_t expected = bf16 ? bf16_from_float(source[i]) : fp16_from_float(source[i]);
      uint16_t half;
      std::memcpy(&half, wire + i * 2, 2);
      ASSERT_EQ(half, expected) << i << " of " << elements << ": " << std::hex << bits(source[i]);
      const float back = bf16 ? float_from_bf16(expected) : float_from_fp16(expected);
      ASSERT_EQ(bits(decoded[static_cast<size_t>(i)]), bits(back));
      if (std::isnan(back)) {
        ASSERT_TRUE(std::isnan(sum[static_cast<size_t>(i)]));
      } else {
        ASSERT_EQ(bits(sum[static_cast<size_t>(i)]), bits(1.5f + back));
      }
    }
  };
  check(values.data(), static_cast<int64_t>(values.size()), encoded.data());
  for (int64_t elements = 0; elements < 70; ++elements) {
    for (int offset = 0; offset < 3; ++offset) check(values.data() + 1000 + offset, elements, encoded.data() + offset);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "bf16" : "fp16"; });

TEST(Codec, WritesExactlyItsEncodedSizeAndConcatenates) {
  const std::vector<float> values = nasty_values();
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    const Codec& codec = codec_for(parse_codec(name));
    for (const int64_t elements : {0, 1, 7, 8, 15, 16, 17, 31, 33, 257}) {
      const size_t bytes = static_cast<size_t>(codec.encoded_bytes(elements));
      ASSERT_EQ(bytes, static_cast<size_t>(elements) * (codec.spec().lossless() ? 4 : 2));
      std::vector<uint8_t> whole(bytes + 8, 0xab), parts(bytes + 8, 0xab);
      codec.encode(values.data(), elements, whole.data());
      const int64_t first = elements / 3;
      codec.encode(values.data(), first, parts.data());
      codec.encode(values.data() + first, elements - first, parts.data() + codec.encoded_bytes(first));
      EXPECT_EQ(whole, parts) << name;
      for (size_t i = bytes; i < whole.size(); ++i) ASSERT_EQ(whole[i], 0xab) << name << " wrote past its end";
    }
  }
}

TEST(Codec, Fp32KeepsEveryBit) {
  const std::vector<float> values = nasty_values();
  const Codec& codec = codec_for(parse_codec("fp32"));
  std::vector<uint8_t> encoded(values.size() * 4);
  std::vector<float> back(values.size());
  const int64_t elements = static_cast<int64_t>(values.size());
  codec.encode(values.data(), elements, encoded.data());
  codec.decode(encoded.data(), elements, back.data());
  EXPECT_EQ(std::memcmp(values.data(), back.data(), encoded.size()), 0);
}

TEST(Codec, RefusesAnUnknownSpec) {
  for (const CodecSpec& spec : {CodecSpec{"int3", 1}, CodecSpec{"bf16", 256}}) {
    try {
      codec_for(spec);
      FAIL() << spec.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find(spec.name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ballast
