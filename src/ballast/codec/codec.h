#pragma once
// How a run of fp32 numbers is stored or sent. A codec is stateless; its encoded size is an exact function of the element count.
// Encodings concatenate: if a's length is a multiple of spec().block, encode(a ++ b) = encode(a) ++ encode(b). So a long run is summed block by
// block in cache, and scales stand beside their block.
#include <cstdint>
#include <memory>
#include <string>

#include "ballast/plan/codec_spec.h"

namespace ballast {

class Codec {
 public:
  virtual ~Codec() = default;
  virtual const CodecSpec& spec() const = 0;
  int64_t encoded_bytes(int64_t elements) const { return spec().encoded_bytes(elements); }
  // `source` and `result` hold `elements` fp32 numbers; `encoded` holds encoded_bytes(elements).
  virtual void encode(const float* source, int64_t elements, void* encoded) const = 0;
  virtual void decode(const void* encoded, int64_t elements, float* result) const = 0;
  virtual void decode_add(const void* encoded, int64_t elements, float* result) const = 0;  // result += decoded
};

// fp32, bf16, fp16 (round to nearest even). Throws Error(Usage) for a spec that has no codec, naming it.
const Codec& codec_for(const CodecSpec& spec);

}  // namespace ballast
