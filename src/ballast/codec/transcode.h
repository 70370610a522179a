#pragma once
// Runs of numbers from one codec into another, through fp32 and a stretch at a time so that it stays in cache: casts
// between dtypes, encoding for the wire, decoding, and sums of encoded parts.
#include <span>

#include "ballast/codec/codec.h"

namespace ballast {

// target (`to`) = source (`from`), `elements` numbers. A copy where the specs are equal. False as Codec::encode.
bool transcode(const CodecSpec& from, const void* source, const CodecSpec& to, void* target, int64_t elements,
               Draw draw = {});

// Error feedback (LoCo, as in arXiv 2407.04480): what an encoding lost is added to the next one. With x the numbers to
// send and e the kept error, y = x + e is encoded and e <- beta * e + (1 - beta) * (y - decode(encode(y))), itself kept
// as int8 with the wire codec's block.
struct Feedback {
  void* image = nullptr;  // feedback_bytes(codec, elements); nullptr: no feedback
  float beta = 0;
  bool reset = false;     // take e as zero this time: the first step, and every so many steps for all buffers together
};
int64_t feedback_bytes(const CodecSpec& codec, int64_t elements);
bool encode_with_feedback(const Codec& codec, const float* source, int64_t elements, void* encoded,
                          const Feedback& feedback, Draw draw = {});

// Where a sum goes: to fp32 numbers, set or added to, or encoded once more for the next hop without a pass through
// memory.
struct SumTarget {
  float* values = nullptr;
  bool accumulate = false;
  const Codec* codec = nullptr;  // if given: `encoded` gets the sum, with `feedback`, and `values` is not used
  void* encoded = nullptr;
  Feedback feedback;
  Draw draw;
};
// Sums `parts`, each `elements` numbers encoded by `codec`, in the order given, in fp32. `target.values` may be the
// memory of one of the parts where the codec is fp32. False as Codec::encode.
bool sum_parts(const Codec& codec, std::span<const void* const> parts, int64_t elements, const SumTarget& target);

}  // namespace ballast
