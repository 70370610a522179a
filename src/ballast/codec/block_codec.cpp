// int8 and int4 with a scale per block: walks the blocks of a run, writes and reads their headers, and leaves the
// numbers to the kernels.
//
// A block's record: fp32 step (symmetric), or fp32 minimum and fp32 step (asymmetric), then its codes; int4 holds two
// to a byte, the earlier one in the low nibble. Codes past the end of the run are zero.
#include <cstring>

#include "ballast/base/check.h"
#include "ballast/codec/block_kernels.h"

namespace ballast {

namespace {

// Results larger than this do not stay in any cache, so they need not go through it.
constexpr int64_t kStreamBytes = int64_t{16} << 20;

class BlockCodec final : public Codec {
 public:
  BlockCodec(const CodecSpec& spec, const BlockKernels& kernels)
      : spec_(spec),
        kernels_(kernels),
        bits_(spec.name == "int8" ? 8 : 4),
        header_(spec.symmetric ? 4 : 8),
        record_(header_ + code_bytes(bits_, spec.block)) {}
  const CodecSpec& spec() const override { return spec_; }

  bool encode(const float* source, int64_t elements, void* encoded, Draw draw) const override {
    bool finite = true;
    uint8_t* record = static_cast<uint8_t*>(encoded);
    for (int64_t first = 0; first < elements; first += spec_.block, record += record_) {
      const int64_t count = std::min(spec_.block, elements - first);
      finite &= encode_block(source + first, count, {draw.key, draw.first + first}, record);
    }
    return finite;
  }

  void decode(const void* encoded, int64_t elements, float* result) const override {
    const bool stream = kernels_.stream != nullptr && elements * 4 >= kStreamBytes &&
                        reinterpret_cast<uintptr_t>(result) % kStreamAlignment == 0;
    if (!stream) return decode_blocks(kernels_.values, encoded, elements, result);
    const int64_t whole = elements / spec_.block * spec_.block;
    decode_blocks(kernels_.stream, encoded, whole, result);
    kernels_.stream_end();
    decode_blocks(kernels_.values, static_cast<const uint8_t*>(encoded) + encoded_bytes(whole), elements - whole,
                  result + whole);
  }

  void decode_add(const void* encoded, int64_t elements, float* result) const override {
    decode_blocks(kernels_.add, encoded, elements, result);
  }

 private:
  bool encode_block(const float* source, int64_t count, Draw draw, uint8_t* record) const {
    const BlockScale scale = block_scale(kernels_.range(source, count), bits_, spec_.symmetric);
    if (!spec_.symmetric) std::memcpy(record, &scale.base, 4);
    std::memcpy(record + header_ - 4, &scale.step, 4);
    uint8_t* const data = record + header_;
    const uint64_t index = static_cast<uint64_t>(draw.first);
    const uint32_t counter = static_cast<uint32_t>(index);
    const DrawSeed seed = spec_.stochastic ? draw_seed(draw.key, index) : DrawSeed{};
    int64_t written = code_bytes(bits_, count);
    if (scale.kind == BlockScale::Kind::Usual) {
      kernels_.codes(source, count, scale, seed, counter, data);
    } else if (scale.kind == BlockScale::Kind::Careful) {
      careful_codes(source, count, scale, spec_, seed, counter, data);
    } else {
      written = 0;
    }
    const int64_t rest = record_ - header_ - written;
    if (rest > 0) std::memset(data + written, 0, static_cast<size_t>(rest));
    return scale.kind != BlockScale::Kind::NotFinite;
  }

  template <class Kernel>
  void decode_blocks(Kernel kernel, const void* encoded, int64_t elements, float* result) const {
    const uint8_t* record = static_cast<const uint8_t*>(encoded);
    for (int64_t first = 0; first < elements; first += spec_.block, record += record_) {
      float base = -0.0f, step;
      if (!spec_.symmetric) std::memcpy(&base, record, 4);
      std::memcpy(&step, record + header_ - 4, 4);
      kernel(record + header_, std::min(spec_.block, elements - first), base, step, result + first);
    }
  }

  const CodecSpec spec_;
  const BlockKernels kernels_;
  const int bits_;
  const int64_t header_, record_;  // bytes of a block: in front of the codes, and in all
};

}  // namespace

std::vector<BlockKernels> block_kernels(const CodecSpec& spec) {
  std::vector<BlockKernels> kernels;
#if defined(__x86_64__)
  if (has_avx512_block_kernels()) kernels.push_back(avx512_block_kernels(spec));
  if (has_avx2_block_kernels()) kernels.push_back(avx2_block_kernels(spec));
#endif
  kernels.push_back(scalar_block_kernels(spec));
  return kernels;
}

std::unique_ptr<Codec> make_block_codec(const CodecSpec& spec, const BlockKernels& kernels) {
  check_codec(spec);
  BALLAST_CHECK(spec.blocked(), "{} has no blocks", spec.name);
  return std::make_unique<BlockCodec>(spec, kernels);
}

}  // namespace ballast
