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
