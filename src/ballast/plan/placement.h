#pragma once
// Placement is data: where every model state lives (shard level x memory tier x storage codec) and how every movement is
// encoded. DDP, ZeRO-1/2/3, HSDP/MiCS are rows of this table; nothing else in Ballast knows their names.
// Sources: ZeRO 1910.02054; MiCS 2205.00119; hpZ and ZeRO++ 2306.10209; ZeRO-topo 2501.04266.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ballast/plan/codec_spec.h"
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
  std::string text() const { return native ? "native" : codec.name; }
};

struct StatePlace {
  int level = kSelf;        // sharded over group(level)
  Tier tier = Tier::Device;
  CodecChoice storage;
};

enum class Movement : uint8_t { ForwardGather, BackwardGather, Reduce, ReduceOn, Refresh, Count };
const char* name_of(Movement movement);

// One row of the table, for the parameter groups that its pattern matches.
struct PlacementRow {
  std::string pattern = "*";          // glob over group names
  StatePlace weights, gradients, optimizer;
  bool keep = false;                  // gathered weights stay from the forward to the backward of a micro-batch
  // Codec per hop, outermost hop first; one entry means all hops; empty means native.
  std::array<std::vector<CodecChoice>, static_cast<size_t>(Movement::Count)> wire;
  // The codec of the hop over `level` when the movement's hops run over the levels (inner, outer].
  CodecSpec codec_of(Movement movement, int level, int outermost_hop, const CodecSpec& native_codec) const;
};

struct Placement {
  std::string name;                   // preset text or "table"
  std::vector<PlacementRow> rows;     // the first match counts; the last row matches everything
  const PlacementRow& row_for(const std::string& group) const;
};

// "ddp", "zero1", "zero2", "zero3", "hsdp(LEVEL)", "mics(LEVEL)". Throws Error(Usage) with did-you-mean.
Placement parse_placement_preset(const std::string& text, const Topology& topology);
// A preset text, a table {weights: {shard: L, tier, storage}, gradients, optimizer, wire: {forward, backward, reduce, reduce_on, refresh}, keep},
// or a list of such tables with `groups: GLOB`. Throws Error(Usage) naming key and place; illegal tables name the rule and a legal neighbour.
Placement parse_placement(const YAML::Node& node, const Topology& topology);

// Rules: weights <= optimizer and gradients <= optimizer in the nesting of levels. Throws Error(Usage).
void check_legal(const PlacementRow& row, const Topology& topology);
std::string describe_row(const PlacementRow& row, const Topology& topology);
std::vector<std::string> placement_presets();

}  // namespace ballast
