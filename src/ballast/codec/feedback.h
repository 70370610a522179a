#pragma once
// Encoding with error feedback a stretch at a time: what encode_with_feedback and sum_parts (transcode.h) share.
#include <memory>

#include "ballast/codec/transcode.h"

namespace ballast {

class FeedbackEncoder {
 public:
  FeedbackEncoder(const Codec& codec, const Feedback& feedback);
  // Stretches begin at multiples of it.
  int64_t block() const { return error_codec_ == nullptr ? codec_.spec().block : error_codec_->spec().block; }
  // Elements [first, first + count) of the run whose encoding and error begin at `encoded` and `feedback.image`.
  // Changes `values` to values + error.
  bool encode(float* values, int64_t first, int64_t count, void* encoded, Draw draw);

 private:
  void keep_error(const float* values, int64_t count, const void* encoded, void* image);

  const Codec& codec_;
  const Feedback feedback_;
  const Codec* error_codec_ = nullptr;  // nullptr: no feedback
  std::unique_ptr<float[]> error_;
  int64_t capacity_ = 0;
};

}  // namespace ballast
