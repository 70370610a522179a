// The header of a block: its step, chosen so that the end points come back and nothing overflows.
#include "ballast/codec/block_scale.h"

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

namespace ballast {

namespace {

constexpr uint32_t kInfinity = 0x7f800000u;
// From here up the inverse of a step is far from overflow and the step has all its bits.
constexpr float kSmallestUsual = 0x1p-100f;
// From here up base + L * step, though meant to be finite, may round to infinity.
constexpr uint32_t kHuge = 0x7f000000u;  // 2^127

float step_of(double extent, int32_t largest) {
  float step = static_cast<float>(extent / largest);
  // A step below the normal range has few bits: rounded down it would leave the end points out of reach.
  if (step < FLT_MIN && static_cast<double>(step) * largest < extent) {
    step = std::bit_cast<float>(std::bit_cast<uint32_t>(step) + 1);
  }
  return step;
}

}  // namespace

BlockScale block_scale(const BlockRange& range, int bits, bool symmetric) {
  using Kind = BlockScale::Kind;
  if (range.magnitude >= kInfinity) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    return {Kind::NotFinite, nan, nan, 0};
  }
  const int32_t largest = largest_code(bits, symmetric);
  BlockScale scale;
  const float absmax = std::bit_cast<float>(range.magnitude);
  // A zero of either sign becomes +0: which of the two a minimum returns depends on the order of comparison.
  scale.base = symmetric ? -0.0f : range.low + 0.0f;
  const float extent = symmetric ? absmax : range.high - range.low;  // may be infinity
  if (extent >= kSmallestUsual && extent <= FLT_MAX) {
    scale.kind = Kind::Usual;
    scale.step = extent / static_cast<float>(largest);
    scale.inverse = static_cast<float>(largest) / extent;
  } else if (extent > 0) {
    scale.kind = Kind::Careful;
    scale.step = step_of(symmetric ? absmax : static_cast<double>(range.high) - range.low, largest);
    if (!(scale.step > 0)) return {Kind::Constant, scale.base, 0, 0};  // where the CPU takes denormals as zero
  }
  if (range.magnitude >= kHuge) {
    const auto top = [&] { return static_cast<double>(scale.step) * largest + static_cast<double>(scale.base); };
    // FLT_MAX plus half a unit in its last place is the first double that becomes infinity.
    if (top() >= static_cast<double>(FLT_MAX) + 0x1p103) {
      scale.step = std::bit_cast<float>(std::bit_cast<uint32_t>(scale.step) - 1);
    }
  }
  return scale;
}

}  // namespace ballast
