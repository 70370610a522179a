// The element-wise codecs, and the registry of all codecs.
#include "ballast/codec/codec.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>

#include "ballast/codec/block_kernels.h"
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
  check_codec(spec);
  if (spec.name == "fp32") return fp32;
  if (spec.name == "bf16") return bf16;
  if (spec.name == "fp16") return fp16;
  // Block codecs are made when first asked for and never removed.
  using Key = std::tuple<std::string, int64_t, bool, bool>;
  static std::shared_mutex mutex;
  static std::map<Key, std::unique_ptr<Codec>> made;
  const Key key{spec.name, spec.block, spec.symmetric, spec.stochastic};
  {
    const std::shared_lock lock(mutex);
    if (const auto found = made.find(key); found != made.end()) return *found->second;
  }
  const std::unique_lock lock(mutex);
  std::unique_ptr<Codec>& codec = made[key];
  if (codec == nullptr) codec = make_block_codec(spec, block_kernels(spec).front());
  return *codec;
}

}  // namespace ballast
