#include "ballast/plan/placement.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

const char* name_of(Movement movement) {
  switch (movement) {
    case Movement::ForwardGather: return "forward";
    case Movement::BackwardGather: return "backward";
    case Movement::Reduce: return "reduce";
    case Movement::ReduceOn: return "reduce_on";
    case Movement::Refresh: return "refresh";
    case Movement::Count: break;
  }
  return "?";
}

int PlacementRow::inner_of(Movement movement) const {
  switch (movement) {
    case Movement::ReduceOn: return gradients.level;
    case Movement::Refresh: return weights.level;
    default: return kSelf;
  }
}

int PlacementRow::outer_of(Movement movement, const Topology& topology) const {
  switch (movement) {
    case Movement::ForwardGather: return weights.level;
    case Movement::BackwardGather: return secondary ? secondary->level : weights.level;
    case Movement::Reduce: return gradients.level;
    case Movement::Refresh: return optimizer.level;
    case Movement::ReduceOn:
    case Movement::Count: break;
  }
  return topology.outermost();
}

std::vector<HopSpec> PlacementRow::hops(Movement movement, int inner, int outer, const Topology& topology, const CodecSpec& native_codec,
                                        const CodecSpec& unless_given) const {
  const auto& entries = wire[static_cast<size_t>(movement)];
  if (entries.empty()) return plain_hops(inner, outer, topology, unless_given);
  const bool spans = entries.front().up_to != kEachLevel;
  const int outermost = outer_of(movement, topology);
  std::vector<HopSpec> list;
  std::optional<size_t> last;
  for (int level = inner + 1; level <= outer; ++level) {
    if (topology.level(level).size == 1) continue;
    size_t index = 0;
    if (spans) {
      while (index + 1 < entries.size() && level <= entries[index + 1].up_to) ++index;
    } else if (entries.size() > 1) {
      index = static_cast<size_t>(outermost - level);
    }
    BALLAST_CHECK(index < entries.size(), "hop {} of {} codecs", index, entries.size());
    if (spans && last == index) {
      list.back().outer = level;
    } else {
      list.push_back({level - 1, level, entries[index].codec.resolve(native_codec), entries[index].feedback});
    }
    last = index;
  }
  return list;
}

std::vector<HopSpec> plain_hops(int inner, int outer, const Topology& topology, const CodecSpec& codec) {
  std::vector<HopSpec> list;
  for (int level = inner + 1; level <= outer; ++level) {
    if (topology.level(level).size > 1) list.push_back({level - 1, level, codec, {}});
  }
  return list;
}

const PlacementRow& Placement::row_for(const std::string& group) const {
  for (const PlacementRow& row : rows) {
    if (fnmatch(row.pattern.c_str(), group.c_str(), 0) == 0) return row;
  }
  throw Error(ErrorKind::Usage, fmt::format("no placement row covers the parameter group '{}'", group))
      .at("placement")
      .cure("end the list with a row whose groups are '*'");
}

namespace {

// A list names each level once, outermost first; or every entry says how far its hop reaches.
void check_entries(Movement movement, const std::vector<WireEntry>& entries, int inner, int outer, const Topology& topology) {
  if (entries.empty()) return;
  const std::string key = fmt::format("wire.{}", name_of(movement));
  const auto refuse = [&](const std::string& what, const std::string& expected) {
    throw Error(ErrorKind::Usage, what).at("placement", key).expected(expected);
  };
  const bool reduces = movement == Movement::Reduce || movement == Movement::ReduceOn;
  size_t spans = 0;
  for (const WireEntry& entry : entries) {
    spans += entry.up_to != kEachLevel;
    if (entry.feedback && !reduces) refuse(key + ": error feedback belongs to sums of gradients", "feedback in wire.reduce or wire.reduce_on");
    if (entry.feedback && (entry.codec.native || !entry.codec.codec.blocked())) refuse(key + ": error feedback needs a block codec", "int8 or int4");
  }
  if (spans == 0) {
    const int hops = outer - inner;
    if (entries.size() == 1 || entries.size() == static_cast<size_t>(hops)) return;
    refuse(fmt::format("{} lists {} codecs", key, entries.size()), fmt::format("one codec for all hops, or {}: one per level, outermost first", hops));
  }
  if (spans != entries.size()) refuse(key + ": some entries say up_to, some do not", "up_to in all entries or in none");
  if (outer > inner && entries.front().up_to < outer) {
    refuse(fmt::format("{}: the outermost hop ends at {}", key, topology.name_of(entries.front().up_to)), fmt::format("up_to: {}, where the movement ends", topology.name_of(outer)));
  }
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].up_to > entries[i - 1].up_to) refuse(key + ": hops must be listed outermost first", "up_to falling from entry to entry");
  }
}

}  // namespace

void check_legal(const PlacementRow& row, const Topology& topology) {
  const auto rule = [&](const char* state, const StatePlace& place) {
    if (place.level <= row.optimizer.level) return;
    throw Error(ErrorKind::Usage, fmt::format("illegal placement: {} must not be cut further than the optimizer state", state))
        .at("placement", "groups " + row.pattern)
        .found(fmt::format("{} over {}, optimizer over {}", state, topology.name_of(place.level), topology.name_of(row.optimizer.level)))
        .expected(fmt::format("{} <= optimizer in the nesting of levels: the optimizer's shard lies inside the {} shard", state, state))
        .cure(fmt::format("a legal neighbour: optimizer: {{shard: {}}}", topology.name_of(place.level)));
  };
  rule("weights", row.weights);
  rule("gradients", row.gradients);
  const auto device_only = [&](const char* state, const StatePlace& place) {
    if (place.tier == Tier::Device) return;
    throw Error(ErrorKind::Usage, fmt::format("{}: only the tier 'device' can be placed yet", state))
        .at("placement", std::string(state) + ".tier")
        .cure(fmt::format("a legal neighbour: {}: {{shard: {}}}, without tier", state, topology.name_of(place.level)));
  };
  device_only("weights", row.weights);
  device_only("gradients", row.gradients);
  device_only("optimizer", row.optimizer);
  if (row.secondary) {
    device_only("secondary", *row.secondary);
    if (row.weights.level == kSelf || row.keep) {
      throw Error(ErrorKind::Usage, row.keep ? "illegal placement: kept weights leave nothing for secondary weights to serve"
                                             : "illegal placement: secondary weights belong to weights that are cut")
          .at("placement", "groups " + row.pattern)
          .found(fmt::format("weights over {}, secondary over {}{}", topology.name_of(row.weights.level), topology.name_of(row.secondary->level), row.keep ? ", keep" : ""))
          .expected("secondary only beside weights over a level, without keep")
          .cure(row.keep ? "leave out keep or secondary" : "a legal neighbour: weights: {shard: world}");
    }
  }
  for (size_t m = 0; m < row.wire.size(); ++m) {
    const auto movement = static_cast<Movement>(m);
    check_entries(movement, row.wire[m], row.inner_of(movement), row.outer_of(movement, topology), topology);
  }
}

std::string describe_row(const PlacementRow& row, const Topology& topology) {
  std::string text = fmt::format("weights over {}, gradients over {}, optimizer over {}", topology.name_of(row.weights.level),
                                 topology.name_of(row.gradients.level), topology.name_of(row.optimizer.level));
  if (row.secondary) {
    text += fmt::format(", secondary weights over {} as {}{}", topology.name_of(row.secondary->level), row.secondary->storage.text(),
                        row.secondary_forward ? ", serving later forwards too" : "");
  }
  for (size_t m = 0; m < row.wire.size(); ++m) {
    if (row.wire[m].empty()) continue;
    text += fmt::format(", {}", name_of(static_cast<Movement>(m)));
    for (const WireEntry& entry : row.wire[m]) {
      text += " " + entry.codec.text();
      if (entry.up_to != kEachLevel) text += " in one hop up to " + topology.name_of(entry.up_to);
      if (entry.feedback) text += " with error feedback";
    }
  }
  if (row.keep) text += ", gathered weights kept for the backward";
  return text;
}

}  // namespace ballast
