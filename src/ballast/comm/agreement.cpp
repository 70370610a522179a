#include "ballast/comm/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/error.h"

namespace ballast {

namespace {

std::vector<std::pair<std::string, std::string>> lines_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> items;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t tab = std::min(line.find('\t'), line.size());
    items.emplace_back(line.substr(0, tab), tab < line.size() ? line.substr(tab + 1) : "");
    at = end + 1;
  }
  return items;
}

}  // namespace

void check_same(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& items) {
  std::string mine;
  for (const auto& [name, hash] : items) mine += name + "\t" + hash + "\n";
  const std::vector<std::string> all = communicator.all_gather_text(mine, "compare configs");
  const auto first = lines_of(all[0]);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto other = lines_of(all[rank]);
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const std::pair<std::string, std::string> none{"(nothing)", ""};
      const auto& a = i < first.size() ? first[i] : none;
      const auto& b = i < other.size() ? other[i] : none;
      if (a == b) continue;
      const std::string name = a.first == b.first
                                   ? "'" + printable(a.first) + "'"
                                   : fmt::format("'{}' and '{}'", printable(a.first), printable(b.first));
      throw Error(ErrorKind::PeerLost,
                  fmt::format("rank 0 and rank {} were started differently: {} differs", rank, name))
          .found(fmt::format("{} on rank 0, {} on rank {}", printable(a.second), printable(b.second), rank))
          .cure("start all ranks with the same binary, config and data");
    }
  }
}

void check_same_topology(Communicator& communicator, const Topology& topology) {
  std::string text;
  for (const Level& level : topology.levels()) {
    text += fmt::format("{}{}: {} x {} B/s, {} s, {} link(s)", text.empty() ? "" : ", ", level.name, level.size, level.bandwidth.value_or(0), level.latency.value_or(0), level.links);
  }
  check_same(communicator, {{"topology", text}});
}

}  // namespace ballast
