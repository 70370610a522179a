#include "ballast/comm/link_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/units.h"

namespace ballast {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kPingBytes = 8;
constexpr int64_t kWarmPings = 5, kLeastPings = 11, kMostPings = 1001;
constexpr int64_t kMostRounds = 1 << 20;
constexpr double kLongRun = 5;  // so many times the wanted length need no second run

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Probe {
 public:
  Probe(Communicator& communicator, const Topology& topology, int level, const LinkProbeOptions& options)
      : communicator_(communicator), topology_(topology), level_(level), options_(options), partner_(topology.group_size(level - 1)) {}

  LinkFigures run() {
    LinkFigures figures{.name = topology_.level(level_).name, .size = topology_.level(level_).size, .by_size = {}, .left_out = {}};
    if (figures.size == 1) return figures;
    figures.latency_s = latency();
    double slowest_rate = 0;  // of the size before
    for (const int64_t bytes : options_.sizes) {
      const double share = static_cast<double>(bytes * topology_.group_size(level_ - 1));
      if (slowest_rate > 0 && share / slowest_rate > options_.longest_seconds) {
        figures.left_out = bytes;
        break;
      }
      buffer_.resize(static_cast<size_t>(bytes));
      incoming_.resize(buffer_.size());
      const double pair = static_cast<double>(bytes) / round_seconds([&](int64_t rounds) { return stream(rounds, bytes); });
      const double unit = share / round_seconds([&](int64_t rounds) { return ring(rounds, bytes); });
      figures.by_size.push_back({bytes, pair, unit});
      figures.bandwidth_bytes_per_s = std::max(figures.bandwidth_bytes_per_s, unit);
      slowest_rate = std::min(pair, unit);
    }
    check_figures(figures);
    return figures;
  }

 private:
  // Rank 0 and its neighbour across the level are the pair; the others wait in the next agreement.
  bool first() const { return communicator_.rank() == 0; }
  bool second() const { return communicator_.rank() == partner_; }

  void send(int64_t to, int64_t bytes, int64_t round) {
    const Send one{to, buffer_.data(), bytes};
    communicator_.exchange({&one, 1}, {}, static_cast<uint64_t>(round), {"measure " + topology_.level(level_).name, static_cast<uint64_t>(round)});
  }
  void receive(int64_t from, int64_t bytes, int64_t round) {
    const Receive one{from, incoming_.data(), bytes};
    communicator_.exchange({}, {&one, 1}, static_cast<uint64_t>(round), {"measure " + topology_.level(level_).name, static_cast<uint64_t>(round)});
  }

  // The largest of all ranks' values, on all ranks.
  double agree(double mine) {
    std::vector<double> all(static_cast<size_t>(communicator_.size()));
    communicator_.all_gather_fixed(&mine, sizeof mine, all.data(), "measure links");
    return *std::max_element(all.begin(), all.end());
  }

  std::vector<double> round_trips(int64_t count) {
    std::vector<double> seconds;
    communicator_.barrier("measure links");
    for (int64_t i = 0; i < count; ++i) {
      const auto begin = Clock::now();
      if (first()) send(partner_, kPingBytes, i), receive(partner_, kPingBytes, i);
      if (second()) receive(0, kPingBytes, i), send(0, kPingBytes, i);
      seconds.push_back(seconds_since(begin));
    }
    return seconds;
  }

  double latency() {
    buffer_.resize(kPingBytes);
    incoming_.resize(kPingBytes);
    const std::vector<double> warm_up = round_trips(kWarmPings);
    const double warm = agree(first() ? warm_up.back() : 0);
    const double fitting = options_.seconds / std::max(warm, 1e-9);
    const int64_t count = fitting >= static_cast<double>(kMostPings) ? kMostPings : std::max(kLeastPings, static_cast<int64_t>(fitting));
    std::vector<double> seconds = round_trips(count);
    std::nth_element(seconds.begin(), seconds.begin() + count / 2, seconds.end());
    return agree(first() ? seconds[static_cast<size_t>(count / 2)] / 2 : 0);
  }

  // Messages one way, as many as fit into a link's queues; over when the last one is acknowledged.
  double stream(int64_t rounds, int64_t bytes) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < rounds && first(); ++i) send(partner_, bytes, i);
    for (int64_t i = 0; i < rounds && second(); ++i) receive(0, bytes, i);
    if (first()) receive(partner_, 1, rounds);
    if (second()) send(0, 1, rounds);
    return first() ? seconds_since(begin) : 0;
  }

  // Every rank to its neighbour across the level, and from the one on the other side.
  double ring(int64_t rounds, int64_t bytes) {
    const std::vector<int64_t> members = topology_.hop_members(communicator_.rank(), level_);
    const size_t here = static_cast<size_t>(topology_.coordinate(communicator_.rank(), level_)), units = members.size();
    const Send one{members[(here + 1) % units], buffer_.data(), bytes};
    const Receive other{members[(here + units - 1) % units], incoming_.data(), bytes};
    // Taken before the last of two barriers: no rank's clock starts after another has begun to send.
    const auto begin = Clock::now();
    communicator_.barrier("measure links");
    for (int64_t i = 0; i < rounds; ++i) {
      communicator_.exchange({&one, 1}, {&other, 1}, static_cast<uint64_t>(i), {"measure " + topology_.level(level_).name, static_cast<uint64_t>(i)});
    }
    return seconds_since(begin);
  }

  // Seconds of one round, from a run of so many that they take long enough to be measured. The faster of two runs: a hiccup
  // of the machine or a lost packet can only make one slower.
  double round_seconds(const std::function<double(int64_t rounds)>& run) {
    const auto once = [&](int64_t rounds) {
      communicator_.barrier("measure links");
      return agree(run(rounds));
    };
    for (int64_t rounds = 1;;) {
      double seconds = once(rounds);
      if (seconds < kLongRun * options_.seconds) seconds = std::min(seconds, once(rounds));
      if (seconds >= options_.seconds || rounds >= kMostRounds) return seconds / static_cast<double>(rounds);
      const double growth = std::clamp(1.2 * options_.seconds / std::max(seconds, 1e-9), 2.0, 16.0);
      rounds = std::min(kMostRounds, static_cast<int64_t>(std::ceil(static_cast<double>(rounds) * growth)));
    }
  }

  Communicator& communicator_;
  const Topology& topology_;
  int level_;
  const LinkProbeOptions& options_;
  int64_t partner_;
  std::vector<char> buffer_, incoming_;
};

}  // namespace

std::vector<LinkFigures> probe_links(Communicator& communicator, const Topology& topology, const LinkProbeOptions& options,
                                     const std::function<void(const std::string&)>& progress) {
  BALLAST_CHECK(topology.ranks() == communicator.size(), "topology {} for {} ranks", topology.text(), communicator.size());
  if (communicator.size() == 1) {
    throw Error(ErrorKind::Usage, "one rank alone has no links to measure")
        .at("topology")
        .found(topology.text())
        .cure("give --ranks N or a topology, or start the ranks with torchrun, mpirun or srun");
  }
  std::vector<LinkFigures> figures;
  for (int level = 0; level < topology.level_count(); ++level) {
    if (progress) progress(topology.level(level).name);
    figures.push_back(Probe(communicator, topology, level, options).run());
  }
  return figures;
}

void check_figures(const LinkFigures& figures) {
  if (figures.size == 1) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::Environment, fmt::format("the links of level '{}' cannot be measured", printable(figures.name)))
        .found(what)
        .expected("positive, finite figures")
        .cure("check that the ranks of this level reach each other, that no link on the way is set to a rate of zero, and that the machine's clock runs");
  };
  const auto wrong = [](double value) { return !(value > 0) || !std::isfinite(value); };
  if (wrong(figures.latency_s)) refuse(fmt::format("a latency of {} s", figures.latency_s));
  if (figures.by_size.empty()) refuse("no rate");
  for (const LinkRate& rate : figures.by_size) {
    for (const double value : {rate.pair_bytes_per_s, rate.unit_bytes_per_s}) {
      if (wrong(value)) refuse(fmt::format("{} bytes/s with messages of {}", value, format_bytes(rate.bytes)));
    }
  }
  if (wrong(figures.bandwidth_bytes_per_s)) refuse(fmt::format("a bandwidth of {} bytes/s", figures.bandwidth_bytes_per_s));
}

}  // namespace ballast
