#pragma once
// Placement is data: where every model state lives (shard level x memory tier x storage codec) and how every movement is
// encoded. DDP, ZeRO-1/2/3, HSDP/MiCS, hpZ, ZeRO++ and ZeRO-topo are rows of this table; nothing else in Ballast knows their names.
// Sources: ZeRO 1910.02054; MiCS 2205.00119; hpZ and ZeRO++ 2306.10209; ZeRO-topo 2501.04266.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/plan/codec_spec.h"
#include "ballast/plan/feedback_spec.h"
#include "ballast/plan/topology.h"

namespace YAML {
class Node;
}

namespace ballast {

enum class Tier : uint8_t { Device, Host, Disk };

// A codec or "native": the compute dtype (weights, wire), fp32 (gradients, optimizer).
struct CodecChoice {
  bool native = true;
  CodecSpec codec;
  CodecSpec resolve(const CodecSpec& native_codec) const { return native ? native_codec : codec; }
  std::string text() const { return native ? "native" : codec.text(); }
};

struct StatePlace {
  int level = kSelf;        // sharded over group(level)
  Tier tier = Tier::Device;
  CodecChoice storage;
};

enum class Movement : uint8_t { ForwardGather, BackwardGather, Reduce, ReduceOn, Refresh, Count };
const char* name_of(Movement movement);

// An entry of a movement's list of codecs, outermost first.
constexpr int kEachLevel = -2;
struct WireEntry {
  CodecChoice codec;
  std::optional<FeedbackSpec> feedback;   // reductions only
  int up_to = kEachLevel;                 // a level: one hop over all levels from the next entry's (exclusive) to this one
};

// One collective: over the levels (inner, outer], all in one exchange.
struct HopSpec {
  int inner = kSelf, outer = kSelf;
  CodecSpec codec;
  std::optional<FeedbackSpec> feedback;
};

// One row of the table, for the parameter groups that its pattern matches.
struct PlacementRow {
  std::string pattern = "*";          // glob over group names
  StatePlace weights, gradients, optimizer;
  std::optional<StatePlace> secondary;   // cut from the weights that the first forward after an update gathered; serves the backward
  bool secondary_forward = false;     // serves every later forward of the step as well (that is what the first one gathered, if stored natively)
  bool keep = false;                  // gathered weights stay from the forward to the backward of a micro-batch
  // One entry means all levels; empty means native, or for gathers from the secondary: as it is stored.
  std::array<std::vector<WireEntry>, static_cast<size_t>(Movement::Count)> wire;

  // The levels that a movement of this row runs between.
  int inner_of(Movement movement) const;
  int outer_of(Movement movement, const Topology& topology) const;
  // The hops of a movement over the levels (inner, outer], innermost first; levels of one unit take no part. `unless_given`: the codec where the
  // row names none.
  std::vector<HopSpec> hops(Movement movement, int inner, int outer, const Topology& topology, const CodecSpec& native_codec,
                            const CodecSpec& unless_given) const;
};
// One hop a level over (inner, outer], all with `codec`.
std::vector<HopSpec> plain_hops(int inner, int outer, const Topology& topology, const CodecSpec& codec);

struct Placement {
  std::string name;                   // preset text or "table"
  std::vector<PlacementRow> rows;     // the first match counts; the last row matches everything
  const PlacementRow& row_for(const std::string& group) const;
};

// NAME or NAME(LEVEL, ..., key=value): "zero3", "hpz(node)", "topo(pair, node, secondary=pair)". Throws Error(Usage) with did-you-mean.
Placement parse_placement_preset(const std::string& text, const Topology& topology);
// A preset text, a table, or a list of such tables with `groups: GLOB` (docs/partitioning.md). Throws Error(Usage) naming key and place; illegal
// tables name the rule and a legal neighbour.
Placement parse_placement(const YAML::Node& node, const Topology& topology);

// Rules: weights <= optimizer and gradients <= optimizer in the nesting of levels, and what docs/partitioning.md lists. Throws Error(Usage) with
// "a legal neighbour: TABLE" as its cure.
void check_legal(const PlacementRow& row, const Topology& topology);
// The row with what breaks a rule changed as little as the rules allow.
PlacementRow legal_neighbour(PlacementRow row, const Topology& topology);
// The row as a table that parse_placement takes: "{weights: pair, gradients: node, optimizer: node, wire: {reduce: int4}}".
std::string table_text(const PlacementRow& row, const Topology& topology);
std::string describe_row(const PlacementRow& row, const Topology& topology);
// The presets as one writes them: "hpz(LEVEL)".
std::vector<std::string> placement_presets();
// A preset, or a table (or list of tables) written in braces as in a configuration; its text is the placement's name.
Placement parse_placement_text(const std::string& text, const Topology& topology);
// Splits "zeropp(node),{weights: pair, optimizer: node}" at the commas outside all brackets.
std::vector<std::string> split_placements(const std::string& text);

// What a user should know before running: hops that fall away, states and codecs that do not pay on these links. One sentence each.
std::vector<std::string> placement_notes(const Placement& placement, const Topology& topology);

}  // namespace ballast
