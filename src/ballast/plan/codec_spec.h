#pragma once
// A codec as the plan knows it: its name and exact encoded size. The bytes are made by codec/.
#include <cstdint>
#include <string>

namespace ballast {

struct CodecSpec {
  std::string name = "fp32";   // fp32, bf16, fp16; block codecs later: int8, int4
  int64_t block = 1;           // elements per scale; encoded runs are padded to it
  bool lossless() const { return name == "fp32"; }
  int64_t encoded_bytes(int64_t elements) const;   // payload with scales and padding
  bool operator==(const CodecSpec&) const = default;
};

// Bytes of scratch that a reduction over `members` of parts of `part` elements needs: what the others send, and all encoded parts where fp32 is
// not sent as it stands.
int64_t reduce_wire_bytes(const CodecSpec& codec, int64_t members, int64_t part);

// "fp32", "bf16", "fp16". Throws Error(Usage) for an unknown name, with the list.
CodecSpec parse_codec(const std::string& text);

}  // namespace ballast
