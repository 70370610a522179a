#include "ballast/plan/codec_spec.h"

#include <fmt/format.h>

#include <vector>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

int64_t CodecSpec::encoded_bytes(int64_t elements) const {
  if (name == "fp32") return elements * 4;
  if (name == "bf16" || name == "fp16") return elements * 2;
  BALLAST_CHECK(false, "codec {} has no size", name);
  return 0;
}

int64_t reduce_wire_bytes(const CodecSpec& codec, int64_t members, int64_t part) {
  const int64_t bytes = codec.encoded_bytes(part);
  return (members - 1) * bytes + (codec.lossless() ? 0 : members * bytes);
}

CodecSpec parse_codec(const std::string& text) {
  const std::vector<std::string> known{"fp32", "bf16", "fp16"};
  for (const std::string& name : known) {
    if (text == name) return CodecSpec{name, 1};
  }
  const std::string near = nearest(text, known);
  throw Error(ErrorKind::Usage, fmt::format("unknown codec '{}'", printable(text)))
      .expected(fmt::format("one of native, {}", fmt::join(known, ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace ballast
