#pragma once
// How a run of fp32 numbers is stored or sent. A codec is stateless; its encoded size is an exact function of the
// element count. Encodings concatenate: if a's length is a multiple of spec().block,
// encode(a ++ b) = encode(a) ++ encode(b). So a long run is summed block by block in cache, and scales stand beside
// their block.
#include <cstdint>

#include "ballast/plan/codec_spec.h"

namespace ballast {

// Which random numbers stochastic rounding draws: the run's first element is number `first` of the stream `key`. What
// an element takes depends on the number of its block's first element and its position in the block.
struct Draw {
  uint64_t key = 0;
  int64_t first = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;
  virtual const CodecSpec& spec() const = 0;
  int64_t encoded_bytes(int64_t elements) const { return spec().encoded_bytes(elements); }
  // `source` and `result` hold `elements` fp32 numbers; `encoded` holds encoded_bytes(elements). Neither side of
  // `encoded` needs alignment.
  // False if a block codec met a NaN or an infinity: the whole of such a block decodes to NaN, so it cannot pass for a
  // number. Codecs without blocks carry the value itself and answer true.
  virtual bool encode(const float* source, int64_t elements, void* encoded, Draw draw = {}) const = 0;
  virtual void decode(const void* encoded, int64_t elements, float* result) const = 0;
  virtual void decode_add(const void* encoded, int64_t elements, float* result) const = 0;  // result += decoded
};

// Throws Error(Usage) for a spec that has no codec, naming it. The reference stays valid.
const Codec& codec_for(const CodecSpec& spec);

}  // namespace ballast
