#pragma once
// Seconds since an arbitrary point, never going back: for durations.
#include <chrono>

namespace ballast {

inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ballast
