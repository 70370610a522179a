#pragma once
// The tiles in which attention works on CPUs, and the scratch that one thread keeps for them: the kernels take it, the plan counts it.
#include <cstdint>

namespace ballast {

constexpr int64_t kAttendQueryTile = 64;
constexpr int64_t kAttendKeyTile = 128;

// Products read their right operand in slivers of so many columns.
constexpr int64_t kSliverWidth = 16;
constexpr int64_t sliver_columns(int64_t columns) { return (columns + kSliverWidth - 1) / kSliverWidth * kSliverWidth; }

// Floats of one thread, whole cache lines. The backward keeps the sums of `summed_keys` keys' gradients where these go out in bf16; fp32
// gradients are summed where they lie.
constexpr int64_t attend_room_floats(int64_t head_dim, bool backward, int64_t summed_keys) {
  const int64_t tile = kAttendQueryTile * kAttendKeyTile, query = kAttendQueryTile * head_dim, keys = kAttendKeyTile * head_dim;
  const int64_t query_slivers = kAttendQueryTile * sliver_columns(head_dim), key_slivers = kAttendKeyTile * sliver_columns(head_dim);
  // Forward: scores, dropout factors, output, maximum and sum, Q, K^T, V. Backward: P, dP, factors, dQ, lse and delta, Q and dO, both also
  // as slivers, K^T, V^T, K.
  const int64_t common = kAttendKeyTile + 2 * kAttendQueryTile;
  const int64_t floats = backward ? common + 2 * tile + 3 * query + 2 * query_slivers + 2 * keys + key_slivers + 2 * summed_keys * head_dim
                                  : common + tile + 2 * query + keys + key_slivers;
  return (floats + 15) / 16 * 16;
}

}  // namespace ballast
