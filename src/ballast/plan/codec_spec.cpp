#include "ballast/plan/codec_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {

void check_name(const std::string& name) {
  const std::vector<std::string> known{"fp32", "bf16", "fp16", "int8", "int4"};
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = nearest(name, known);
  throw Error(ErrorKind::Usage, fmt::format("unknown codec '{}'", printable(name)))
      .expected(fmt::format("one of native, {}", fmt::join(known, ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace

int64_t CodecSpec::encoded_bytes(int64_t elements) const {
  if (name == "fp32") return elements * 4;
  if (name == "bf16" || name == "fp16") return elements * 2;
  BALLAST_CHECK(blocked(), "codec {} has no size", name);
  const int64_t blocks = (elements + block - 1) / block;
  const int64_t scales = symmetric ? 4 : 8;  // fp32 scale; asymmetric: fp32 minimum as well
  return blocks * (scales + (name == "int8" ? block : block / 2));
}

std::string CodecSpec::text() const {
  std::string text = name;
  if (blocked() && block != kDefaultBlock) text += fmt::format(" block {}", block);
  if (!symmetric) text += " asymmetric";
  if (stochastic) text += " stochastic";
  return text;
}

void check_codec(const CodecSpec& spec) {
  check_name(spec.name);
  if (!spec.blocked()) {
    if (spec.block == 1 && spec.symmetric && !spec.stochastic) return;
    throw Error(ErrorKind::Usage, fmt::format("codec {} has no blocks", spec.name))
        .found(spec.text())
        .expected("block, symmetric and rounding belong to int8 and int4");
  }
  if (spec.block >= 8 && spec.block <= 65536 && spec.block % 8 == 0) return;
  throw Error(ErrorKind::Usage, fmt::format("codec {} cannot have blocks of {} elements", spec.name, spec.block))
      .expected("a multiple of 8 from 8 to 65536");
}

CodecSpec parse_codec(const std::string& text) {
  check_name(text);
  CodecSpec spec{.name = text};
  if (spec.blocked()) spec.block = kDefaultBlock;
  return spec;
}

}  // namespace ballast
