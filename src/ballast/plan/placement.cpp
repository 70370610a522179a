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

CodecSpec PlacementRow::codec_of(Movement movement, int level, int outermost_hop, const CodecSpec& native_codec) const {
  const auto& codecs = wire[static_cast<size_t>(movement)];
  if (codecs.empty()) return native_codec;
  if (codecs.size() == 1) return codecs.front().resolve(native_codec);
  const size_t hop = static_cast<size_t>(outermost_hop - level);
  BALLAST_CHECK(hop < codecs.size(), "hop {} of {} codecs", hop, codecs.size());
  return codecs[hop].resolve(native_codec);
}

const PlacementRow& Placement::row_for(const std::string& group) const {
  for (const PlacementRow& row : rows) {
    if (fnmatch(row.pattern.c_str(), group.c_str(), 0) == 0) return row;
  }
  throw Error(ErrorKind::Usage, fmt::format("no placement row covers the parameter group '{}'", group))
      .at("placement")
      .cure("end the list with a row whose groups are '*'");
}

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
    throw Error(ErrorKind::Usage, fmt::format("{}: only the tier 'device' can be placed yet", state)).at("placement", std::string(state) + ".tier");
  };
  device_only("weights", row.weights);
  device_only("gradients", row.gradients);
  device_only("optimizer", row.optimizer);
  const auto count_hops = [&](Movement movement, int inner, int outer) {
    const size_t codecs = row.wire[static_cast<size_t>(movement)].size();
    const int hops = outer - inner;
    if (codecs <= 1 || codecs == static_cast<size_t>(hops)) return;
    throw Error(ErrorKind::Usage, fmt::format("wire.{} lists {} codecs", name_of(movement), codecs))
        .at("placement", fmt::format("wire.{}", name_of(movement)))
        .expected(fmt::format("one codec for all hops, or {}: one per level, outermost first", hops));
  };
  count_hops(Movement::ForwardGather, kSelf, row.weights.level);
  count_hops(Movement::BackwardGather, kSelf, row.weights.level);
  count_hops(Movement::Reduce, kSelf, row.gradients.level);
  count_hops(Movement::ReduceOn, row.gradients.level, topology.outermost());
  count_hops(Movement::Refresh, row.weights.level, row.optimizer.level);
}

std::string describe_row(const PlacementRow& row, const Topology& topology) {
  std::string text = fmt::format("weights over {}, gradients over {}, optimizer over {}", topology.name_of(row.weights.level),
                                 topology.name_of(row.gradients.level), topology.name_of(row.optimizer.level));
  for (size_t m = 0; m < row.wire.size(); ++m) {
    if (row.wire[m].empty()) continue;
    text += fmt::format(", {}", name_of(static_cast<Movement>(m)));
    for (const CodecChoice& codec : row.wire[m]) text += " " + codec.text();
  }
  if (row.keep) text += ", gathered weights kept for the backward";
  return text;
}

}  // namespace ballast
