#pragma once
// Links of thread-ranks that are as slow as their topology says: when a message handed over now has arrived.
// Every unit (a rank, a node, a rack) has a link to the level above it, or several shared out to its ranks, each with a token bucket each way. A message whose
// ends meet at level l passes the sender's units up to l and the receiver's down from it, one bucket for each level. It flows
// through them like packets, so the slowest bucket decides; on one link messages are served one after the other, in the
// order they are handed over. Buckets hold no burst: n bytes never pass in less than n / rate. A level without a
// bandwidth has no bucket; the latency is that of level l alone, whatever lies below.
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ballast/plan/topology.h"

namespace ballast {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws Error(Usage) if no level has a bandwidth or a latency: there would be nothing to limit.
  explicit RateLimit(const Topology& topology);

  // Takes the message's place in all buckets on its way and gives the time at which its last byte is there. Messages of one
  // pair of ranks arrive in the order of these calls. Any thread.
  Clock::time_point arrival(int64_t from, int64_t to, int64_t bytes, Clock::time_point now);

 private:
  struct LevelBuckets {
    int64_t ranks_below;       // of the units that have the buckets
    double seconds_per_byte;   // 0: no limit
    double latency_s;
    std::vector<double> out, in;  // by unit and link: when the bucket has passed all it has taken, seconds since start_
  };

  Topology topology_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::vector<LevelBuckets> levels_;
};

}  // namespace ballast
