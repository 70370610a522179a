#include "ballast/plan/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/error.h"

namespace ballast {

Topology::Topology(std::vector<Level> levels) : levels_(std::move(levels)) {
  if (levels_.empty()) {
    throw Error(ErrorKind::Usage, "a topology needs at least one level").at("topology").cure("write for example {node: 4}");
  }
  std::vector<std::string> names;
  for (const Level& level : levels_) {
    if (level.name.empty() || level.name == "self" || level.name == "world") {
      throw Error(ErrorKind::Usage, fmt::format("'{}' cannot be the name of a level", level.name))
          .at("topology")
          .expected("names other than self and world, which mean one rank and all ranks");
    }
    if (std::find(names.begin(), names.end(), level.name) != names.end()) {
      throw Error(ErrorKind::Usage, fmt::format("level '{}' appears twice", level.name)).at("topology");
    }
    names.push_back(level.name);
    if (level.size < 1) {
      throw Error(ErrorKind::Usage, fmt::format("level '{}' has size {}", level.name, level.size)).at("topology").expected("1 or more units of the level below");
    }
    if (level.size > 1'000'000 || ranks_ > 100'000'000 / level.size) {
      throw Error(ErrorKind::Usage, "the topology has more than 100 million ranks").at("topology");
    }
    if (level.links < 1) {
      throw Error(ErrorKind::Usage, fmt::format("level '{}' has {} links", level.name, level.links)).at("topology").expected("1 or more");
    }
    if (level.bandwidth && !(*level.bandwidth > 0)) {
      throw Error(ErrorKind::Usage, fmt::format("level '{}' has bandwidth {} bytes/s", level.name, *level.bandwidth)).at("topology").expected("a positive rate");
    }
    if (level.latency && !(*level.latency >= 0)) {
      throw Error(ErrorKind::Usage, fmt::format("level '{}' has latency {} s", level.name, *level.latency)).at("topology").expected("zero or more");
    }
    ranks_ *= level.size;
  }
}

Topology Topology::flat(int64_t ranks, const std::string& name) { return Topology({Level{name, ranks, {}, {}}}); }

int Topology::find(const std::string& name) const {
  if (name == "self") return kSelf;
  if (name == "world") return outermost();
  for (int l = 0; l < level_count(); ++l) {
    if (levels_[static_cast<size_t>(l)].name == name) return l;
  }
  std::vector<std::string> known{"self", "world"};
  for (const Level& level : levels_) known.push_back(level.name);
  const std::string near = nearest(name, known);
  throw Error(ErrorKind::Usage, fmt::format("the topology has no level '{}'", printable(name)))
      .found(text())
      .expected("one of " + fmt::format("{}", fmt::join(known, ", ")))
      .cure(near.empty() ? "name a level of the topology" : "did you mean '" + near + "'?");
}

std::string Topology::name_of(int level) const { return level == kSelf ? "self" : levels_[static_cast<size_t>(level)].name; }

int64_t Topology::group_size(int level) const {
  int64_t size = 1;
  for (int l = 0; l <= level; ++l) size *= levels_[static_cast<size_t>(l)].size;
  return size;
}

int64_t Topology::coordinate(int64_t rank, int level) const { return rank / group_size(level - 1) % levels_[static_cast<size_t>(level)].size; }

std::vector<int64_t> Topology::hop_members(int64_t rank, int level) const { return hop_members(rank, level - 1, level); }

int64_t Topology::hop_index(int64_t rank, int inner, int outer) const {
  int64_t index = 0;
  for (int l = inner + 1; l <= outer; ++l) index = index * levels_[static_cast<size_t>(l)].size + coordinate(rank, l);
  return index;
}

std::vector<int64_t> Topology::hop_members(int64_t rank, int inner, int outer) const {
  const int64_t below = group_size(inner), span = group_size(outer) / below;
  const int64_t first = rank - rank / below % span * below;
  std::vector<int64_t> members(static_cast<size_t>(span));
  for (int64_t i = 0; i < span; ++i) members[static_cast<size_t>(hop_index(first + i * below, inner, outer))] = first + i * below;
  return members;
}

int64_t Topology::hop_peers(int inner, int outer, int level) const {
  if (level <= inner || level > outer) return 0;
  return (levels_[static_cast<size_t>(level)].size - 1) * (group_size(level - 1) / group_size(inner));
}

int64_t Topology::shard_index(int64_t rank, int level) const {
  int64_t index = 0;
  for (int l = 0; l <= level; ++l) index = index * levels_[static_cast<size_t>(l)].size + coordinate(rank, l);
  return index;
}

int64_t Topology::links(int level) const { return std::min(levels_[static_cast<size_t>(level)].links, group_size(level - 1)); }

int64_t Topology::link_of(int64_t rank, int level) const {
  const int64_t below = group_size(level - 1);
  return rank % below * links(level) / below;
}

std::vector<int64_t> Topology::link_heads(int64_t rank, int level) const {
  const int64_t below = group_size(level - 1), first = rank / below * below, count = links(level);
  std::vector<int64_t> heads;
  for (int64_t link = 0; link < count; ++link) heads.push_back(first + (link * below + count - 1) / count);   // the least r with r * count / below == link
  return heads;
}

int Topology::common_level(int64_t a, int64_t b) const {
  int level = kSelf;
  for (int l = 0; l < level_count(); ++l) {
    if (coordinate(a, l) != coordinate(b, l)) level = l;
  }
  return level;
}

std::string Topology::text() const {
  std::string out = "{";
  for (const Level& level : levels_) out += fmt::format("{}{}: {}", out.size() > 1 ? ", " : "", level.name, level.size);
  return out + fmt::format("}} = {} rank{}", ranks_, ranks_ == 1 ? "" : "s");
}

}  // namespace ballast
