// Transcoding, sums and error feedback against the same done step by step over the whole run.
#include "ballast/codec/transcode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "codec/block_cases.h"

namespace ballast {
namespace {

std::vector<CodecSpec> specs() {
  std::vector<CodecSpec> specs{{.name = "fp32"}, {.name = "bf16"}, {.name = "fp16"}};
  for (const int64_t block : {8, 40, 256, 8192}) {
    specs.push_back({.name = "int8", .block = block});
    specs.push_back({.name = "int4", .block = block, .symmetric = block != 40, .stochastic = block == 256});
  }
  return specs;
}
constexpr int64_t kLengths[] = {0, 1, 7, 255, 256, 257, 4095, 4096, 4097, 20011};

std::vector<uint8_t> encoded_by(const Codec& codec, const float* values, int64_t elements, Draw draw = {}) {
  std::vector<uint8_t> encoded(static_cast<size_t>(codec.encoded_bytes(elements)));
  codec.encode(values, elements, encoded.data(), draw);
  return encoded;
}

TEST(Transcode, EqualsDecodingAllAndEncodingAll) {
  const std::vector<float> values = random_values(20011, 1);
  for (const CodecSpec& from : specs()) {
    for (const CodecSpec& to : specs()) {
      for (const int64_t elements : kLengths) {
        const Codec &decoder = codec_for(from), &encoder = codec_for(to);
        const std::vector<uint8_t> source = encoded_by(decoder, values.data(), elements, {3, 4});
        std::vector<float> whole(static_cast<size_t>(elements));
        decoder.decode(source.data(), elements, whole.data());
        const Draw draw{5, 77};
        const std::vector<uint8_t> expected = from == to ? source : encoded_by(encoder, whole.data(), elements, draw);
        // At odd addresses, with guards.
        for (const size_t offset : {size_t{0}, size_t{1}}) {
          std::vector<uint8_t> moved(source.size() + offset), target(expected.size() + offset + 8, 0xcd);
          std::copy(source.begin(), source.end(), moved.begin() + static_cast<std::ptrdiff_t>(offset));
          ASSERT_TRUE(transcode(from, moved.data() + offset, to, target.data() + offset, elements, draw));
          ASSERT_TRUE(
              std::equal(expected.begin(), expected.end(), target.begin() + static_cast<std::ptrdiff_t>(offset)))
              << from.text() << " -> " << to.text() << ", " << elements;
          for (size_t i = offset + expected.size(); i < target.size(); ++i) ASSERT_EQ(target[i], 0xcd);
        }
      }
    }
  }
}

TEST(Transcode, SaysWhenABlockIsNotFinite) {
  std::vector<float> values = random_values(9000, 1);
  std::vector<uint8_t> half(18000), target(18000);
  for (const char* name : {"bf16", "fp16"}) {
    values[8500] = std::numeric_limits<float>::infinity();
    codec_for(parse_codec(name)).encode(values.data(), 9000, half.data());
    EXPECT_FALSE(transcode(parse_codec(name), half.data(), parse_codec("int8"), target.data(), 9000));
    EXPECT_FALSE(transcode(parse_codec("fp32"), values.data(), parse_codec("int4"), target.data(), 9000));
    EXPECT_TRUE(transcode(parse_codec(name), half.data(), parse_codec("fp32"), std::vector<float>(9000).data(), 9000));
    EXPECT_TRUE(transcode(parse_codec(name), half.data(), parse_codec("int8"), target.data(), 8448));
  }
}

struct Parts {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<const void*> pointers;
  std::vector<float> sum;  // by decode and decode_add over the whole run
};
Parts parts_of(const Codec& codec, int count, int64_t elements) {
  Parts parts;
  parts.sum.resize(static_cast<size_t>(elements));
  for (int p = 0; p < count; ++p) {
    const std::vector<float> values = random_values(elements, 100 + static_cast<uint32_t>(p));
    parts.bytes.push_back(encoded_by(codec, values.data(), elements));
    if (p == 0) {
      codec.decode(parts.bytes[0].data(), elements, parts.sum.data());
    } else {
      codec.decode_add(parts.bytes.back().data(), elements, parts.sum.data());
    }
  }
  for (const auto& bytes : parts.bytes) parts.pointers.push_back(bytes.data());
  return parts;
}

TEST(SumParts, EqualsDecodingAddingAndEncodingTheWholeRun) {
  for (const CodecSpec& from : specs()) {
    for (const int count : {0, 1, 2, 5}) {
      for (const int64_t elements : {0, 1, 300, 4097, 20011}) {
        const Parts parts = parts_of(codec_for(from), count, elements);
        std::vector<float> set(static_cast<size_t>(elements) + 1, 9.0f), added = set;
        ASSERT_TRUE(sum_parts(codec_for(from), parts.pointers, elements, {.values = set.data()}));
        ASSERT_TRUE(sum_parts(codec_for(from), parts.pointers, elements, {.values = added.data(), .accumulate = true}));
        for (size_t i = 0; i < parts.sum.size(); ++i) {
          ASSERT_EQ(set[i], parts.sum[i]);
          ASSERT_EQ(added[i], 9.0f + parts.sum[i]);
        }
        ASSERT_EQ(set.back(), 9.0f);
        for (const CodecSpec& to : specs()) {
          const Draw draw{8, 123};
          const std::vector<uint8_t> expected = encoded_by(codec_for(to), parts.sum.data(), elements, draw);
          std::vector<uint8_t> target(expected.size());
          SumTarget into;
          into.codec = &codec_for(to);
          into.encoded = target.data();
          into.draw = draw;
          ASSERT_TRUE(sum_parts(codec_for(from), parts.pointers, elements, into));
          ASSERT_EQ(target, expected) << from.text() << " -> " << to.text();
        }
      }
    }
  }
}

TEST(SumParts, TheResultMayLieInAnyFp32Part) {
  const Codec& codec = codec_for({});
  for (size_t place = 0; place < 3; ++place) {
    Parts parts = parts_of(codec, 3, 9001);
    std::vector<float> room(9001);
    std::memcpy(room.data(), parts.bytes[place].data(), parts.bytes[place].size());
    parts.pointers[place] = room.data();
    ASSERT_TRUE(sum_parts(codec, parts.pointers, 9001, {.values = room.data()}));
    ASSERT_EQ(room, parts.sum);
  }
}

TEST(SumParts, SaysWhenTheEncodedSumIsNotFinite) {
  const Codec& codec = codec_for({});
  const std::vector<float> huge(600, 3e38f);
  const std::vector<const void*> parts{huge.data(), huge.data()};
  std::vector<uint8_t> target(600);
  SumTarget into;
  into.codec = &codec_for(parse_codec("int4"));
  into.encoded = target.data();
  EXPECT_FALSE(sum_parts(codec, parts, 600, into));
  EXPECT_TRUE(sum_parts(codec, std::span(parts).first(1), 600, into));
}

class FeedbackTest : public testing::TestWithParam<CodecSpec> {};

TEST_P(FeedbackTest, WhatWasSentApproachesWhatWasToBeSent) {
  const Codec& codec = codec_for(GetParam());
  constexpr int64_t kElements = 5000;
  constexpr int kSteps = 64;
  std::vector<uint8_t> image(static_cast<size_t>(feedback_bytes(GetParam(), kElements)), 0xee),
      wire(static_cast<size_t>(codec.encoded_bytes(kElements)));
  const std::vector<float> constant = random_values(kElements, 6);
  std::vector<double> asked(kElements), sent(kElements), sent_without(kElements);
  std::vector<float> back(kElements);
  double worst_step = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> values = random_values(kElements, 1000 + static_cast<uint32_t>(step));
    for (size_t i = 0; i < values.size(); ++i) values[i] = constant[i] + 0.25f * values[i];
    const Draw draw{static_cast<uint64_t>(step), 0};
    ASSERT_TRUE(encode_with_feedback(codec, values.data(), kElements, wire.data(),
                                     {.image = image.data(), .reset = step == 0}, draw));
    codec.decode(wire.data(), kElements, back.data());
    for (size_t i = 0; i < back.size(); ++i) {
      asked[i] += values[i], sent[i] += back[i];
      worst_step = std::max(worst_step, static_cast<double>(std::fabs(back[i] - values[i])));
    }
    codec.encode(values.data(), kElements, wire.data(), draw);
    codec.decode(wire.data(), kElements, back.data());
    for (size_t i = 0; i < back.size(); ++i) sent_without[i] += back[i];
  }
  // Of the whole only the last error is missing, and the rounding of each kept error: half a step of int8, whose
  // absmax is an error of the wire. Random signs make the sum of 64 of them about 8 times one, at worst 64 times.
  double off = 0, off_without = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSERT_LE(std::fabs(asked[i] - sent[i]), worst_step + kSteps * worst_step / 254 + 1e-4) << i;
    off += std::fabs(asked[i] - sent[i]), off_without += std::fabs(asked[i] - sent_without[i]);
  }
  EXPECT_LT(off, 0.5 * off_without) << "no better than without feedback";
}

TEST_P(FeedbackTest, EqualsTheEquationBlockByBlock) {
  const Codec& codec = codec_for(GetParam());
  const Codec& error_codec = codec_for({.name = "int8", .block = GetParam().blocked() ? GetParam().block : 256});
  constexpr int64_t kElements = 9003;
  const size_t image_bytes = static_cast<size_t>(feedback_bytes(GetParam(), kElements));
  ASSERT_EQ(image_bytes, static_cast<size_t>(error_codec.encoded_bytes(kElements)));
  for (const float beta : {0.0f, 0.75f}) {
    std::vector<uint8_t> image(image_bytes + 4, 0x5a), wire(static_cast<size_t>(codec.encoded_bytes(kElements)));
    std::vector<float> error(kElements, 0.0f), back(kElements);
    for (int step = 0; step < 5; ++step) {
      const bool reset = step == 0 || step == 3;
      const Draw draw{static_cast<uint64_t>(step), 500};
      const std::vector<float> values = random_values(kElements, 30 + static_cast<uint32_t>(step));
      if (reset) error.assign(kElements, 0.0f);
      std::vector<float> y(values);
      for (size_t i = 0; i < y.size(); ++i) y[i] += error[i];
      const std::vector<uint8_t> expected = encoded_by(codec, y.data(), kElements, draw);
      codec.decode(expected.data(), kElements, back.data());
      for (size_t i = 0; i < y.size(); ++i) error[i] = beta * error[i] + (1 - beta) * (y[i] - back[i]);
      const std::vector<uint8_t> kept = encoded_by(error_codec, error.data(), kElements);
      error_codec.decode(kept.data(), kElements, error.data());
      const Feedback feedback{.image = image.data(), .beta = beta, .reset = reset};
      if (step % 2 == 0) {
        ASSERT_TRUE(encode_with_feedback(codec, values.data(), kElements, wire.data(), feedback, draw));
      } else {  // the same through a sum of one fp32 part
        const void* part = values.data();
        ASSERT_TRUE(sum_parts(codec_for({}), {&part, 1}, kElements,
                              {.codec = &codec, .encoded = wire.data(), .feedback = feedback, .draw = draw}));
      }
      ASSERT_EQ(wire, expected) << "step " << step;
      ASSERT_TRUE(std::equal(kept.begin(), kept.end(), image.begin())) << "step " << step;
      for (size_t i = image_bytes; i < image.size(); ++i) ASSERT_EQ(image[i], 0x5a);
    }
  }
}

TEST_P(FeedbackTest, ABlockThatIsNotFiniteKeepsNoError) {
  const Codec& codec = codec_for(GetParam());
  if (!GetParam().blocked()) return;  // carries the value itself: the image's own blocks are tested through int8
  std::vector<float> values = random_values(3000, 8), back(3000);
  std::vector<uint8_t> image(static_cast<size_t>(feedback_bytes(GetParam(), 3000))),
      wire(static_cast<size_t>(codec.encoded_bytes(3000)));
  values[700] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(encode_with_feedback(codec, values.data(), 3000, wire.data(), {.image = image.data(), .reset = true}));
  codec_for({.name = "int8", .block = GetParam().block}).decode(image.data(), 3000, back.data());
  double kept = 0;
  const int64_t block = GetParam().block;
  for (int64_t i = 0; i < 3000; ++i) {
    ASSERT_TRUE(std::isfinite(back[static_cast<size_t>(i)]));
    if (i / block == 700 / block) {
      ASSERT_EQ(back[static_cast<size_t>(i)], 0.0f);
    }
    kept += std::fabs(back[static_cast<size_t>(i)]);
  }
  EXPECT_GT(kept, 0);
  values[700] = 0;
  EXPECT_TRUE(encode_with_feedback(codec, values.data(), 3000, wire.data(), {.image = image.data()}));
}

INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackTest,
                         testing::Values(CodecSpec{.name = "int4", .block = 256},
                                         CodecSpec{.name = "int8", .block = 64},
                                         CodecSpec{.name = "int4", .block = 40, .symmetric = false},
                                         CodecSpec{.name = "int4", .block = 256, .symmetric = true, .stochastic = true},
                                         CodecSpec{.name = "bf16"}),
                         [](const auto& info) {
                           std::string name = info.param.text();
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(Feedback, LosslessCodecsAndNoImageNeedNone) {
  EXPECT_EQ(feedback_bytes({}, 1000), 0);
  const std::vector<float> values = random_values(500, 3);
  const Codec& codec = codec_for(parse_codec("int4"));
  std::vector<uint8_t> wire(static_cast<size_t>(codec.encoded_bytes(500)));
  EXPECT_TRUE(encode_with_feedback(codec, values.data(), 500, wire.data(), {}));
  EXPECT_EQ(wire, encoded_by(codec, values.data(), 500));
}

}  // namespace
}  // namespace ballast
