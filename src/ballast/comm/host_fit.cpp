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

std::string cure_for(const Topology& topology, int level, const std::vector<Ranks>& hosts) {
  const auto count = static_cast<int64_t>(hosts.front().size());
  const bool equal = std::all_of(hosts.begin(), hosts.end(), [&](const Ranks& ranks) { return static_cast<int64_t>(ranks.size()) == count; });
  const bool in_order = std::all_of(hosts.begin(), hosts.end(), [](const Ranks& ranks) { return ranks.back() - ranks.front() + 1 == static_cast<int64_t>(ranks.size()); });
  const std::string& inner = topology.level(level).name;
  if (!equal) {
    return fmt::format("start as many ranks on every host, leave the surplus ranks out, or use one level: topology={{{}: {}}}", inner, topology.ranks());
  }
  const std::string fitting = fmt::format("topology={{{}: {}, {}: {}}}", inner, count, topology.level(topology.outermost()).name, static_cast<int64_t>(hosts.size()));
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
      return fmt::format("level '{}' of the topology crosses hosts: {} of one unit stand on {} hosts, one of which has ranks of another unit too; what the plan sends over the links of "
                         "'{}' there goes over those between hosts. {}",
                         topology.level(level).name, fmt::join(words, " and "), parts.size(), topology.level(level).name, cure_for(topology, level, by_host));
    }
  }
  return "";
}

}  // namespace ballast
