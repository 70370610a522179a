#pragma once
// The inner loops of the block codecs for one kind of CPU. The scalar ones are the reference; the others give the same
// bits. What surrounds them - blocks, headers, short and odd blocks - is block_codec.cpp's.
#include <memory>
#include <vector>

#include "ballast/codec/block_scale.h"

namespace ballast {

// For one spec. `data` is a block's codes without its header; `elements` of it are read or written, in
// code_bytes(bits, elements), and nothing beside them.
struct BlockKernels {
  const char* name = "";
  BlockRange (*range)(const float* source, int64_t elements) = nullptr;
  // The block's scale is Kind::Usual; `seed` and `counter` are those of its first element.
  void (*codes)(const float* source, int64_t elements, const BlockScale& scale, DrawSeed seed, uint32_t counter,
                uint8_t* data) = nullptr;
  void (*values)(const uint8_t* data, int64_t elements, float base, float step, float* result) = nullptr;
  void (*add)(const uint8_t* data, int64_t elements, float base, float step, float* result) = nullptr;
  // As `values`, past the caches: for results larger than they are. The result is aligned to kStreamAlignment and
  // `elements` is a multiple of 8.
  void (*stream)(const uint8_t* data, int64_t elements, float base, float step, float* result) = nullptr;
  void (*stream_end)() = nullptr;  // orders the stream's stores before later ones
};
constexpr int64_t kStreamAlignment = 32;

constexpr int64_t code_bytes(int bits, int64_t elements) { return bits == 8 ? elements : (elements + 1) / 2; }

BlockKernels scalar_block_kernels(const CodecSpec& spec);
// Codes of a Careful block: the reference for every CPU.
void careful_codes(const float* source, int64_t elements, const BlockScale& scale, const CodecSpec& spec, DrawSeed seed,
                   uint32_t counter, uint8_t* data);
#if defined(__x86_64__)
bool has_avx2_block_kernels();
BlockKernels avx2_block_kernels(const CodecSpec& spec);
bool has_avx512_block_kernels();
BlockKernels avx512_block_kernels(const CodecSpec& spec);
#endif

// Those that this CPU can run, the fastest first, the scalar ones last.
std::vector<BlockKernels> block_kernels(const CodecSpec& spec);

// A codec over given kernels, as codec_for makes it over the first of the list: for tests and measurements.
std::unique_ptr<Codec> make_block_codec(const CodecSpec& spec, const BlockKernels& kernels);

}  // namespace ballast
