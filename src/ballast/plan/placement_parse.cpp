// Reads a placement from a preset name or a table of the configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "ballast/base/error.h"
#include "ballast/plan/placement.h"

namespace ballast {

namespace {

struct Preset {
  const char* name;
  bool takes_level;
  const char* weights;     // "self", "world" or "L": the level given in parentheses
  const char* gradients;
  const char* optimizer;
};
// Adding a strategy of this kind is adding a row.
constexpr Preset kPresets[] = {
    {"ddp", false, "self", "self", "self"},
    {"zero1", false, "self", "self", "world"},
    {"zero2", false, "self", "world", "world"},
    {"zero3", false, "world", "world", "world"},
    {"hsdp", true, "L", "L", "L"},
    {"mics", true, "L", "L", "L"},
};

std::string place_of(const YAML::Node& node, const std::string& key) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? key : fmt::format("{}, line {}", key, mark.line + 1);
}

void check_keys(const YAML::Node& node, const std::string& key, const std::vector<std::string>& known) {
  if (!node.IsMap()) throw Error(ErrorKind::Usage, fmt::format("{} must be a table", key)).at(place_of(node, key)).expected(fmt::format("keys {}", fmt::join(known, ", ")));
  for (const auto& entry : node) {
    const std::string name = entry.first.as<std::string>("");
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest(name, known);
    throw Error(ErrorKind::Usage, fmt::format("unknown key '{}.{}'", key, printable(name)))
        .at(place_of(entry.first, key))
        .expected(fmt::format("one of {}", fmt::join(known, ", ")))
        .cure(near.empty() ? "remove it" : "did you mean '" + near + "'?");
  }
}

std::string scalar(const YAML::Node& node, const std::string& key) {
  if (!node.IsScalar()) throw Error(ErrorKind::Usage, fmt::format("{} must be one word", key)).at(place_of(node, key));
  return node.as<std::string>();
}

CodecChoice parse_choice(const YAML::Node& node, const std::string& key) {
  const std::string text = scalar(node, key);
  if (text == "native") return {};
  try {
    return {false, parse_codec(text)};
  } catch (const Error& error) {
    throw Error(ErrorKind::Usage, error.summary()).at(place_of(node, key)).expected("native, fp32, bf16 or fp16");
  }
}

StatePlace parse_state(const YAML::Node& node, const std::string& key, const Topology& topology) {
  StatePlace place;
  if (node.IsScalar()) {
    place.level = topology.find(node.as<std::string>());
    return place;
  }
  check_keys(node, key, {"shard", "tier", "storage"});
  if (node["shard"]) place.level = topology.find(scalar(node["shard"], key + ".shard"));
  if (node["tier"]) {
    const std::string tier = scalar(node["tier"], key + ".tier");
    if (tier == "device") place.tier = Tier::Device;
    else if (tier == "host") place.tier = Tier::Host;
    else if (tier == "disk") place.tier = Tier::Disk;
    else throw Error(ErrorKind::Usage, fmt::format("unknown tier '{}'", printable(tier))).at(place_of(node["tier"], key + ".tier")).expected("device, host or disk");
  }
  if (node["storage"]) {
    place.storage = parse_choice(node["storage"], key + ".storage");
    // Native storage is the compute dtype for weights and fp32 for the rest; any other needs a storage codec.
    const bool is_weights = key == "placement.weights";
    if (!place.storage.native && (is_weights || place.storage.codec.name != "fp32")) {
      throw Error(ErrorKind::Usage, fmt::format("{} cannot be stored as {}", key, place.storage.codec.name))
          .at(place_of(node["storage"], key + ".storage"))
          .expected(is_weights ? "native (the compute dtype)" : "native or fp32");
    }
  }
  return place;
}

PlacementRow parse_row(const YAML::Node& node, const Topology& topology) {
  check_keys(node, "placement", {"groups", "weights", "gradients", "optimizer", "wire", "keep"});
  PlacementRow row;
  if (node["groups"]) row.pattern = scalar(node["groups"], "placement.groups");
  if (node["weights"]) row.weights = parse_state(node["weights"], "placement.weights", topology);
  if (node["gradients"]) row.gradients = parse_state(node["gradients"], "placement.gradients", topology);
  if (node["optimizer"]) row.optimizer = parse_state(node["optimizer"], "placement.optimizer", topology);
  if (node["keep"]) {
    const std::string keep = scalar(node["keep"], "placement.keep");
    if (keep != "true" && keep != "false") throw Error(ErrorKind::Usage, "placement.keep must be true or false").at(place_of(node["keep"], "placement.keep"));
    row.keep = keep == "true";
  }
  if (node["wire"]) {
    check_keys(node["wire"], "placement.wire", {"forward", "backward", "reduce", "reduce_on", "refresh"});
    for (size_t m = 0; m < row.wire.size(); ++m) {
      const std::string name = name_of(static_cast<Movement>(m));
      const YAML::Node codecs = node["wire"][name];
      if (!codecs) continue;
      const std::string key = "placement.wire." + name;
      if (codecs.IsSequence()) {
        for (const auto& codec : codecs) row.wire[m].push_back(parse_choice(codec, key));
        if (row.wire[m].empty()) throw Error(ErrorKind::Usage, key + " is an empty list").at(place_of(codecs, key));
      } else {
        row.wire[m].push_back(parse_choice(codecs, key));
      }
    }
  }
  check_legal(row, topology);
  return row;
}

}  // namespace

std::vector<std::string> placement_presets() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.push_back(preset.takes_level ? std::string(preset.name) + "(LEVEL)" : preset.name);
  return names;
}

Placement parse_placement_preset(const std::string& text, const Topology& topology) {
  // NAME or NAME(LEVEL)
  const auto trimmed = [](std::string_view word) {
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    return std::string(word);
  };
  const std::string whole = trimmed(text);
  const size_t open = whole.find('(');
  const bool has_argument = open != std::string::npos;
  const std::string name = trimmed(whole.substr(0, open));
  const bool closed = !has_argument || (whole.back() == ')' && whole.find_first_of("()", open + 1) == whole.size() - 1);
  const std::string argument = has_argument && closed ? trimmed(whole.substr(open + 1, whole.size() - open - 2)) : "";
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  if (name.empty() || !closed) {
    throw Error(ErrorKind::Usage, fmt::format("'{}' is no placement", printable(text))).at("placement").expected(fmt::format("one of {}, or a table", fmt::join(placement_presets(), ", ")));
  }
  for (const Preset& preset : kPresets) {
    if (name != preset.name) continue;
    if (preset.takes_level != !argument.empty() || (has_argument && argument.empty())) {
      throw Error(ErrorKind::Usage, fmt::format("placement '{}' {}", name, preset.takes_level ? "needs a level" : "takes no level"))
          .at("placement")
          .found(text)
          .expected(preset.takes_level ? fmt::format("{}(LEVEL) with a level of {}", name, topology.text()) : name);
    }
    const auto level = [&](const char* where) { return std::string(where) == "L" ? topology.find(argument) : topology.find(where); };
    PlacementRow row;
    row.weights.level = level(preset.weights);
    row.gradients.level = level(preset.gradients);
    row.optimizer.level = level(preset.optimizer);
    check_legal(row, topology);
    return Placement{text, {row}};
  }
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::Usage, fmt::format("unknown placement '{}'", printable(name)))
      .at("placement")
      .expected(fmt::format("one of {}, or a table", fmt::join(placement_presets(), ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

Placement parse_placement(const YAML::Node& node, const Topology& topology) {
  if (node.IsScalar()) return parse_placement_preset(node.as<std::string>(), topology);
  Placement placement{"table", {}};
  if (node.IsSequence()) {
    for (const auto& row : node) placement.rows.push_back(parse_row(row, topology));
    if (placement.rows.empty()) throw Error(ErrorKind::Usage, "the placement list is empty").at(place_of(node, "placement"));
    return placement;
  }
  placement.rows.push_back(parse_row(node, topology));
  return placement;
}

}  // namespace ballast
