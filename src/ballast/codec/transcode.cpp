// Transcoding and sums, a stretch at a time.
#include "ballast/codec/transcode.h"

#include <algorithm>
#include <cstring>

#include "ballast/codec/feedback.h"
#include "ballast/codec/half.h"
#include "ballast/codec/stretches.h"

namespace ballast {

namespace {

const void* at(const Codec& codec, const void* encoded, int64_t element) {
  return static_cast<const char*>(encoded) + codec.encoded_bytes(element);
}
void* at(const Codec& codec, void* encoded, int64_t element) {
  return static_cast<char*>(encoded) + codec.encoded_bytes(element);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % alignof(float) == 0; }

void sum_stretch(const Codec& codec, std::span<const void* const> parts, int64_t first, int64_t count, float* sum) {
  if (parts.empty()) std::fill_n(sum, count, 0.0f);
  for (size_t p = 0; p < parts.size(); ++p) {
    const void* const part = at(codec, parts[p], first);
    if (p == 0) {
      codec.decode(part, count, sum);
    } else {
      codec.decode_add(part, count, sum);
    }
  }
}

}  // namespace

bool transcode(const CodecSpec& from, const void* source, const CodecSpec& to, void* target, int64_t elements,
               Draw draw) {
  const Codec& decoder = codec_for(from);
  const Codec& encoder = codec_for(to);
  if (elements <= 0) return true;
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(decoder.encoded_bytes(elements)));
    return true;
  }
  if (from.lossless() && aligned(source)) {
    return encoder.encode(static_cast<const float*>(source), elements, target, draw);
  }
  if (to.lossless() && aligned(target)) {
    decoder.decode(source, elements, static_cast<float*>(target));
    return true;
  }
  bool finite = true;
  for_stretches(
      elements, from.block, to.block,
      [&](int64_t first, int64_t count, float* values) { decoder.decode(at(decoder, source, first), count, values); },
      [&](int64_t first, int64_t count, float* values) {
        finite &= encoder.encode(values, count, at(encoder, target, first), {draw.key, draw.first + first});
      });
  return finite;
}

bool sum_parts(const Codec& codec, std::span<const void* const> parts, int64_t elements, const SumTarget& target) {
  const auto sum = [&](int64_t first, int64_t count, float* values) {
    sum_stretch(codec, parts, first, count, values);
  };
  if (target.codec != nullptr) {
    FeedbackEncoder encoder(*target.codec, target.feedback);
    bool finite = true;
    for_stretches(elements, codec.spec().block, encoder.block(), sum, [&](int64_t first, int64_t count, float* values) {
      finite &= encoder.encode(values, first, count, target.encoded, {target.draw.key, target.draw.first + first});
    });
    return finite;
  }
  // Each stretch is read from all parts before it is written, so that the result may lie in one of them.
  for_stretches(elements, codec.spec().block, 1, sum, [&](int64_t first, int64_t count, float* values) {
    if (target.accumulate) {
      add_fp32(values, count, target.values + first);
    } else {
      std::memcpy(target.values + first, values, static_cast<size_t>(count) * 4);
    }
  });
  return true;
}

}  // namespace ballast
