#pragma once
// The tree of the machine: levels from the innermost out, ranks by coordinates, groups, and the level a transfer counts at.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ballast {

struct Level {
  std::string name;
  int64_t size = 1;                       // units of the level below
  std::optional<double> bandwidth;        // bytes/s of one link
  std::optional<double> latency;          // s
  int64_t links = 1;                      // that each unit of the level below has to the others; its ranks share them in blocks of equal size
};

// Index of a level: 0 is the innermost; kSelf (-1) stands for one rank alone.
constexpr int kSelf = -1;

class Topology {
 public:
  // Throws Error(Usage) for no level, sizes < 1, empty, reserved or duplicate names ("self", "world").
  explicit Topology(std::vector<Level> levels);
  static Topology flat(int64_t ranks, const std::string& name = "node");

  int64_t ranks() const { return ranks_; }
  int level_count() const { return static_cast<int>(levels_.size()); }
  const Level& level(int index) const { return levels_[static_cast<size_t>(index)]; }
  const std::vector<Level>& levels() const { return levels_; }
  int outermost() const { return level_count() - 1; }
  // "self" -> kSelf, "world" -> outermost, else by name. Throws Error(Usage) with did-you-mean.
  int find(const std::string& name) const;
  std::string name_of(int level) const;

  // Ranks of the group at a level: product of the sizes up to it; 1 for kSelf.
  int64_t group_size(int level) const;
  // Coordinate of a rank at a level, 0 <= c < level(level).size. rank = sum coordinate(l) * group_size(l - 1).
  int64_t coordinate(int64_t rank, int level) const;
  // The ranks that differ from `rank` only in the coordinate of `level`, in coordinate order: the members of one hop.
  std::vector<int64_t> hop_members(int64_t rank, int level) const;
  // The same for a hop over the levels (inner, outer]: ranks with equal coordinates outside them, in the order of their shards (the innermost of
  // these coordinates cuts first); and the rank's place among them.
  std::vector<int64_t> hop_members(int64_t rank, int inner, int outer) const;
  int64_t hop_index(int64_t rank, int inner, int outer) const;
  // How many other members of such a hop a rank meets at `level`.
  int64_t hop_peers(int inner, int outer, int level) const;
  // Index of the rank's shard among group_size(level): the innermost coordinate cuts first, (i * P + p) * N + n (design: nested ownership).
  int64_t shard_index(int64_t rank, int level) const;
  // Which link of its unit a rank uses at a level, 0 <= link < min(links, ranks of the unit).
  int64_t links(int level) const;
  int64_t link_of(int64_t rank, int level) const;
  // The first rank of each link of the unit below `level` that holds `rank`, by link.
  std::vector<int64_t> link_heads(int64_t rank, int level) const;
  // Innermost level that contains both; kSelf if a == b.
  int common_level(int64_t a, int64_t b) const;
  std::string text() const;  // "{pair: 2, node: 2} = 4 ranks"

 private:
  std::vector<Level> levels_;
  int64_t ranks_ = 1;
};

}  // namespace ballast
