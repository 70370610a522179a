#include "ballast/comm/rate_limit.h"

#include <algorithm>

#include "ballast/base/error.h"

namespace ballast {

RateLimit::RateLimit(const Topology& topology) : topology_(topology) {
  bool limited = false;
  for (int l = 0; l < topology.level_count(); ++l) {
    const Level& level = topology.level(l);
    limited = limited || level.bandwidth || level.latency;
    const int64_t below = topology.group_size(l - 1);
    const size_t units = level.bandwidth ? static_cast<size_t>(topology.ranks() / below * topology.links(l)) : 0;
    levels_.push_back({below, level.bandwidth ? 1 / *level.bandwidth : 0, level.latency.value_or(0),
                       std::vector<double>(units), std::vector<double>(units)});
  }
  if (!limited) {
    throw Error(ErrorKind::Usage, "links shall be limited, but no level says how")
        .at("topology")
        .found(topology.text())
        .expected("a level with a bandwidth or a latency, as in {node: 2, cluster: {size: 2, bandwidth: 200Mbit}}");
  }
}

RateLimit::Clock::time_point RateLimit::arrival(int64_t from, int64_t to, int64_t bytes, Clock::time_point now) {
  const int meeting = topology_.common_level(from, to);
  if (meeting == kSelf) return now;
  const double entered = std::chrono::duration<double>(now - start_).count();
  double first = entered;  // first byte's entry into the next bucket
  double last = entered;   // last byte's exit from the buckets so far
  const auto pass = [&](double& free_at, double seconds) {
    // The bucket is taken for bytes / rate only, though a slower one before it may stretch the message: others use the gaps.
    first = std::max(first, free_at);
    free_at = first + seconds;
    last = std::max(last, free_at);
  };
  const std::lock_guard lock(mutex_);
  const auto each = [&](int l, int64_t rank, std::vector<double> LevelBuckets::* side) {
    LevelBuckets& level = levels_[static_cast<size_t>(l)];
    if (level.seconds_per_byte > 0)
      pass((level.*side)[static_cast<size_t>(rank / level.ranks_below * topology_.links(l) + topology_.link_of(rank, l))],
           static_cast<double>(bytes) * level.seconds_per_byte);
  };
  for (int l = 0; l <= meeting; ++l) each(l, from, &LevelBuckets::out);
  for (int l = meeting; l >= 0; --l) each(l, to, &LevelBuckets::in);
  const double arrived = last + levels_[static_cast<size_t>(meeting)].latency_s;
  if (arrived <= entered) return now;  // no limit on the way
  // Rounded up: a transfer is never earlier than the rate allows.
  return start_ + std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(arrived));
}

}  // namespace ballast
