// The element-wise codecs and their registry.
#include "ballast/codec/codec.h"

#include <fmt/format.h>

#include <cstring>

#include "ballast/base/error.h"
#include "ballast/codec/half.h"

namespace ballast {

namespace {

class Fp32Codec final : public Codec {
 public:
  const CodecSpec& spec() const override { return spec_; }
  bool encode(const float* source, int64_t elements, void* encoded, Draw) const override {
    if (elements > 0) std::memcpy(encoded, source, static_cast<size_t>(elements) * 4);
    return true;
  }
  void decode(const void* encoded, int64_t elements, float* result) const override {
    if (elements > 0) std::memcpy(result, encoded, static_cast<size_t>(elements) * 4);
  }
  void decode_add(const void* encoded, int64_t elements, float* result) const override {
    add_fp32(encoded, elements, result);
  }

 private:
  CodecSpec spec_;
};

using Encode = void (*)(const float*, int64_t, void*);
using Decode = void (*)(const void*, int64_t, float*);

class HalfCodec final : public Codec {
 public:
  HalfCodec(const char* name, Encode encode, Decode decode, Decode decode_add)
      : spec_{.name = name}, encode_(encode), decode_(decode), decode_add_(decode_add) {}
  const CodecSpec& spec() const override { return spec_; }
  bool encode(const float* source, int64_t elements, void* encoded, Draw) const override {
    encode_(source, elements, encoded);
    return true;
  }
  void decode(const void* encoded, int64_t elements, float* result) const override {
    decode_(encoded, elements, result);
  }
  void decode_add(const void* encoded, int64_t elements, float* result) const override {
    decode_add_(encoded, elements, result);
  }

 private:
  CodecSpec spec_;
  Encode encode_;
  Decode decode_, decode_add_;
};

}  // namespace

const Codec& codec_for(const CodecSpec& spec) {
  static const Fp32Codec fp32;
  static const HalfCodec bf16("bf16", encode_bf16, decode_bf16, decode_add_bf16);
  static const HalfCodec fp16("fp16", encode_fp16, decode_fp16, decode_add_fp16);
  for (const Codec* codec :
       {static_cast<const Codec*>(&fp32), static_cast<const Codec*>(&bf16), static_cast<const Codec*>(&fp16)}) {
    if (codec->spec() == spec) return *codec;
  }
  throw Error(ErrorKind::Usage, fmt::format("no codec '{}' with block {}", printable(spec.name), spec.block))
      .expected("fp32, bf16 or fp16, each with block 1");
}

}  // namespace ballast
