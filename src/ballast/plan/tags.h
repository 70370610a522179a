#pragma once
// Tags of exchanges between ranks: what a graph writes, and what a communicator counts by.
#include <cstdint>

namespace ballast {

inline constexpr uint64_t kTagLimit = uint64_t{1} << 30;    // of a graph: all below it; the control plane uses those above (c10d's tags are 31 bits)
inline constexpr uint64_t kLayoutTag = uint64_t{1} << 29;   // exchanges of rows of a layout from here on, hops of a placement below

}  // namespace ballast
