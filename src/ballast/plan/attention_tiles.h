#pragma once
// The tiles in which attention works on CPUs, and the scratch that one thread keeps for them: the kernels take it, the plan counts it.
#include <cstdint>

namespace ballast {

constexpr int64_t kAttendQueryTile = 64;
constexpr int64_t kAttendKeyTile = 128;

// Floats of one thread, whole cache lines. narrow: q, k, v are bf16 and are widened tile by tile. backward keeps the sums of `narrow_keys`
// keys' gradients where these go out in bf16; fp32 gradients are summed where they lie.
constexpr int64_t attend_room_floats(int64_t head_dim, bool narrow, bool backward, int64_t narrow_keys) {
  const int64_t tile = kAttendQueryTile * kAttendKeyTile, query = kAttendQueryTile * head_dim, keys = kAttendKeyTile * head_dim;
  // forward: scores, factors of dropout, output, running maximum and sum; backward: P and dP, factors, dQ, lse and delta.
  int64_t floats = (backward ? 2 : 1) * tile + kAttendKeyTile + query + 2 * kAttendQueryTile;
  if (narrow) floats += (backward ? 2 : 1) * query + 2 * keys;
  if (backward) floats += 2 * narrow_keys * head_dim;
  return (floats + 15) / 16 * 16;
}

}  // namespace ballast
