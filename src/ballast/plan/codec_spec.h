#pragma once
// A codec as the plan knows it: its name, its parameters and its exact encoded size. The bytes are made by codec/.
#include <cstdint>
#include <string>

namespace ballast {

struct CodecSpec {
  std::string name = "fp32";  // fp32, bf16, fp16, int8, int4
  int64_t block = 1;          // elements per scale; runs are whole blocks, except that the last one may be short
  bool symmetric = true;      // int8, int4: absmax -> 127 / 7; else the block's minimum and range
  bool stochastic = false;    // int8, int4: rounds up with the probability of the fraction, else to nearest even

  bool lossless() const { return name == "fp32"; }
  bool blocked() const { return name == "int8" || name == "int4"; }
  int64_t encoded_bytes(int64_t elements) const;  // payload with scales; a short last block takes a whole one's bytes
  std::string text() const;                       // "int4", "int4 block 128 asymmetric stochastic"
  bool operator==(const CodecSpec&) const = default;
};

constexpr int64_t kDefaultBlock = 256;

// "fp32", "bf16", "fp16", and "int8", "int4" with their defaults: block 256, symmetric, to nearest. Throws
// Error(Usage) for an unknown name, with the list.
CodecSpec parse_codec(const std::string& text);
// Throws Error(Usage) for a block that the codec cannot have: int8 and int4 take a multiple of 8 from 8 to 65536, the
// others 1.
void check_codec(const CodecSpec& spec);

}  // namespace ballast
