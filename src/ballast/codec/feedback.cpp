// Error feedback (LoCo, arXiv 2407.04480).
#include "ballast/codec/feedback.h"

#include <algorithm>
#include <bit>

#include "ballast/codec/stretches.h"

namespace ballast {

namespace {

CodecSpec error_spec(const CodecSpec& codec) {
  return {.name = "int8", .block = codec.blocked() ? codec.block : kDefaultBlock};
}

bool all_finite(const float* values, int64_t count) {
  uint32_t magnitude = 0;
  for (int64_t i = 0; i < count; ++i) magnitude = std::max(magnitude, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  return magnitude < 0x7f800000u;
}

}  // namespace

int64_t feedback_bytes(const CodecSpec& codec, int64_t elements) {
  return codec.lossless() ? 0 : error_spec(codec).encoded_bytes(elements);
}

FeedbackEncoder::FeedbackEncoder(const Codec& codec, const Feedback& feedback) : codec_(codec), feedback_(feedback) {
  if (feedback.image != nullptr && !codec.spec().lossless()) error_codec_ = &codec_for(error_spec(codec.spec()));
}

bool FeedbackEncoder::encode(float* values, int64_t first, int64_t count, void* encoded, Draw draw) {
  void* const target = static_cast<char*>(encoded) + codec_.encoded_bytes(first);
  if (error_codec_ == nullptr) return codec_.encode(values, count, target, draw);
  if (count > capacity_) {
    error_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(2 * count));
    capacity_ = count;
  }
  void* const image = static_cast<char*>(feedback_.image) + error_codec_->encoded_bytes(first);
  if (!feedback_.reset) error_codec_->decode_add(image, count, values);
  const bool finite = codec_.encode(values, count, target, draw);
  keep_error(values, count, target, image);
  return finite;
}

void FeedbackEncoder::keep_error(const float* values, int64_t count, const void* encoded, void* image) {
  float* const error = error_.get();
  float* const sent = error + capacity_;
  codec_.decode(encoded, count, sent);
  const float beta = feedback_.beta, rest = 1 - beta;
  if (beta == 0) {
    for (int64_t i = 0; i < count; ++i) error[i] = values[i] - sent[i];
  } else {
    if (feedback_.reset) {
      std::fill_n(error, count, 0.0f);
    } else {
      error_codec_->decode(image, count, error);
    }
    for (int64_t i = 0; i < count; ++i) error[i] = beta * error[i] + rest * (values[i] - sent[i]);
  }
  if (error_codec_->encode(error, count, image)) return;
  // A block with a NaN or an infinity keeps no error: it would be sent again in every later step.
  const int64_t block = error_codec_->spec().block;
  for (int64_t b = 0; b < count; b += block) {
    const int64_t length = std::min(block, count - b);
    if (!all_finite(error + b, length)) std::fill_n(error + b, length, 0.0f);
  }
  error_codec_->encode(error, count, image);
}

bool encode_with_feedback(const Codec& codec, const float* source, int64_t elements, void* encoded,
                          const Feedback& feedback, Draw draw) {
  FeedbackEncoder encoder(codec, feedback);
  if (feedback.image == nullptr || codec.spec().lossless()) return codec.encode(source, elements, encoded, draw);
  bool finite = true;
  for_stretches(
      elements, encoder.block(), encoder.block(),
      [&](int64_t first, int64_t count, float* values) { std::copy_n(source + first, count, values); },
      [&](int64_t first, int64_t count, float* values) {
        finite &= encoder.encode(values, first, count, encoded, {draw.key, draw.first + first});
      });
  return finite;
}

}  // namespace ballast
