#include "ballast/comm/host_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ballast/base/check.h"

namespace ballast {

namespace {

using Ranks = std::vector<int64_t>;

std::string text_of(const Ranks& ranks) { return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")); }

// The ranks of each host, hosts in the order of their first rank.
std::vector<Ranks> ranks_of(const std::vector<std::string>& hosts) {
  std::vector<Ranks> all;
  std::map<std::string, size_t> index;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [found, fresh] = index.try_emplace(hosts[rank], all.size());
    if (fresh) all.emplace_back();
    all[found->second].push_back(static_cast<int64_t>(rank));
  }
  return all;
}

bool of_equal_size(const std::vector<Ranks>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [&](const Ranks& ranks) { return ranks.size() == hosts.front().size(); });
}

// "2 on each", "3, 1": the ranks of each host.
std::string sizes_text(const std::vector<Ranks>& hosts) {
  if (of_equal_size(hosts)) return fmt::format("{} on each", hosts.front().size());
  std::vector<size_t> sizes;
  for (const Ranks& ranks : hosts) sizes.push_back(ranks.size());
  constexpr size_t kShown = 8;
  return fmt::format("{}{}", fmt::join(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, sizes.size())), ", "), sizes.size() > kShown ? ", ..." : "");
}

std::string cure_for(const Topology& topology, int level, const std::vector<Ranks>& hosts) {
  const auto count = static_cast<int64_t>(hosts.front().size());
  const bool equal = of_equal_size(hosts);
  const bool in_order = std::all_of(hosts.begin(), hosts.end(), [](const Ranks& ranks) { return ranks.back() - ranks.front() + 1 == static_cast<int64_t>(ranks.size()); });
  const std::string& inner = topology.level(level).name;
  if (!equal) {
    return fmt::format("start as many ranks on every host, leave the surplus ranks out, or use one level: topology={{{}: {}}}", inner, topology.ranks());
  }
  const std::string outer = level < topology.outermost() ? topology.level(topology.outermost()).name : inner == "cluster" ? "hosts" : "cluster";
  const std::string fitting = fmt::format("topology={{{}: {}, {}: {}}}", inner, count, outer, static_cast<int64_t>(hosts.size()));
  return in_order ? "the hosts are " + fitting : "start the ranks host by host (mpirun --map-by slot, srun --distribution=block), with units of whole hosts as in " + fitting;
}

}  // namespace

std::string host_misfit(const Topology& topology, const std::vector<std::string>& hosts) {
  BALLAST_CHECK(topology.ranks() == static_cast<int64_t>(hosts.size()), "{} ranks, {} hosts", topology.ranks(), hosts.size());
  const std::vector<Ranks> by_host = ranks_of(hosts);
  for (int level = 0; level < topology.outermost(); ++level) {
    const int64_t size = topology.group_size(level);
    for (int64_t first = 0; first < topology.ranks(); first += size) {
      const auto inside = [&](int64_t rank) { return rank >= first && rank < first + size; };
      std::vector<Ranks> parts;   // of the hosts that the unit meets
      bool cut = false;           // one of them has ranks elsewhere
      for (const Ranks& ranks : by_host) {
        Ranks part;
        std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(part), inside);
        cut |= !part.empty() && part.size() < ranks.size();
        if (!part.empty()) parts.push_back(std::move(part));
      }
      if (parts.size() < 2 || !cut) continue;
      std::vector<std::string> words;
      for (const Ranks& part : parts) words.push_back(text_of(part));
      return fmt::format("level '{}' of the topology crosses hosts: its units have {} ranks, the {} hosts {}; {} of one unit stand on {} hosts, one of which has ranks of another unit "
                         "too; what the plan sends over the links of '{}' there goes over those between hosts. {}",
                         topology.level(level).name, size, by_host.size(), sizes_text(by_host), fmt::join(words, " and "), parts.size(), topology.level(level).name,
                         cure_for(topology, level, by_host));
    }
  }
  // One level over hosts that a second one would tell apart.
  if (topology.group_size(0) == topology.ranks() && by_host.size() > 1 && by_host.front().size() > 1 && of_equal_size(by_host)) {
    return fmt::format("level '{}' of the topology crosses hosts: its unit has {} ranks, the {} hosts {}; no placement can keep off the links between hosts. {}", topology.level(0).name,
                       topology.ranks(), by_host.size(), sizes_text(by_host), cure_for(topology, 0, by_host));
  }
  return "";
}

}  // namespace ballast
