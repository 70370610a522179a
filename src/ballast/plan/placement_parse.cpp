// Reads a placement from a preset name or a table of the configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/plan/placement.h"

namespace ballast {

namespace {

// A strategy as the table that it stands for, with $NAME where an argument goes, and ?NAME for an entry that stands there only if it is given. Adding a
// strategy of this kind is adding a row.
struct Preset {
  const char* name;
  std::vector<const char*> levels;                             // arguments by position: names of levels
  std::vector<std::pair<const char*, const char*>> options;    // arguments by name, with their defaults
  const char* table;
};
const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"ddp", {}, {}, "{weights: self, gradients: self, optimizer: self}"},
      {"zero1", {}, {}, "{weights: self, gradients: self, optimizer: world}"},
      {"zero2", {}, {}, "{weights: self, gradients: world, optimizer: world}"},
      {"zero3", {}, {}, "{weights: world, gradients: world, optimizer: world}"},
      {"hsdp", {"L"}, {}, "{weights: $L, gradients: $L, optimizer: $L}"},
      {"mics", {"L"}, {}, "{weights: $L, gradients: $L, optimizer: $L}"},
      {"hpz", {"L"}, {}, "{weights: world, secondary: $L, gradients: world, optimizer: world}"},
      {"zeropp", {"L"}, {{"forward", "int8"}, {"reduce", "int4"}, {"block", "256"}, {"feedback", "false"}},
       "{weights: world, secondary: $L, gradients: world, optimizer: world,"
       " wire: {forward: $forward, reduce: [{codec: $reduce?block?feedback, up_to: world}, {codec: $reduce?block?feedback, up_to: $L}]}}"},
      {"topo", {"L0", "L1"}, {{"secondary", "$L1"}, {"forward", "int8"}, {"reduce", "int4"}, {"block", "256"}, {"feedback", "false"}, {"reduce_on", "native"}, {"refresh", "native"}},
       "{weights: $L0, secondary: {shard: $secondary, storage: int8}, gradients: $L1, optimizer: world,"
       " wire: {forward: $forward, reduce: {codec: $reduce?block?feedback, up_to: $L1}, reduce_on: $reduce_on, refresh: $refresh}}"},
  };
  return all;
}

std::string usage_of(const Preset& preset) {
  std::string text;
  for (size_t i = 0; i < preset.levels.size(); ++i) text += preset.levels.size() == 1 ? "LEVEL" : fmt::format("{}LEVEL{}", i == 0 ? "" : ", ", i);
  for (const auto& [key, value] : preset.options) text += fmt::format(", {}={}", key, value[0] == '$' ? "LEVEL1" : value);
  return text.empty() ? preset.name : fmt::format("{}({})", preset.name, text);
}

std::string trimmed(std::string_view word) {
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  return std::string(word);
}

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

int64_t whole_number(const YAML::Node& node, const std::string& key) {
  try {
    return parse_count(scalar(node, key));
  } catch (const Error& error) {
    throw Error(ErrorKind::Usage, fmt::format("{} is no whole number", key)).at(place_of(node, key)).found(printable(scalar(node, key)));
  }
}

bool yes_or_no(const YAML::Node& node, const std::string& key) {
  const std::string text = scalar(node, key);
  if (text != "true" && text != "false") throw Error(ErrorKind::Usage, key + " must be true or false").at(place_of(node, key)).found(printable(text));
  return text == "true";
}

CodecChoice parse_choice(const YAML::Node& node, const std::string& key) {
  const std::string text = scalar(node, key);
  if (text == "native") return {};
  try {
    return {false, parse_codec(text)};
  } catch (const Error& error) {
    throw Error(ErrorKind::Usage, error.summary()).at(place_of(node, key)).expected("native, fp32, bf16, fp16, int8 or int4");
  }
}

// WORD, or {codec: WORD, block, symmetric, rounding} and what `more` allows beside.
CodecChoice parse_codec_table(const YAML::Node& node, const std::string& key, const std::vector<std::string>& more) {
  if (node.IsScalar()) return parse_choice(node, key);
  std::vector<std::string> known{"codec", "block", "symmetric", "rounding"};
  known.insert(known.end(), more.begin(), more.end());
  check_keys(node, key, known);
  if (!node["codec"]) throw Error(ErrorKind::Usage, key + " names no codec").at(place_of(node, key)).expected("codec: native, fp32, bf16, fp16, int8 or int4");
  CodecChoice choice = parse_choice(node["codec"], key + ".codec");
  if (node["block"]) choice.codec.block = whole_number(node["block"], key + ".block");
  if (node["symmetric"]) choice.codec.symmetric = yes_or_no(node["symmetric"], key + ".symmetric");
  if (node["rounding"]) {
    const std::string rounding = scalar(node["rounding"], key + ".rounding");
    if (rounding != "nearest" && rounding != "stochastic") {
      throw Error(ErrorKind::Usage, fmt::format("unknown rounding '{}'", printable(rounding))).at(place_of(node["rounding"], key)).expected("nearest or stochastic");
    }
    choice.codec.stochastic = rounding == "stochastic";
  }
  return choice;
}

WireEntry parse_entry(const YAML::Node& node, const std::string& key, const Topology& topology) {
  WireEntry entry;
  entry.codec = parse_codec_table(node, key, {"up_to", "feedback"});
  if (!node.IsMap()) return entry;
  if (node["up_to"]) entry.up_to = topology.find(scalar(node["up_to"], key + ".up_to"));
  if (const YAML::Node feedback = node["feedback"]) {
    const std::string where = key + ".feedback";
    entry.feedback = FeedbackSpec{};
    if (feedback.IsScalar()) {
      if (!yes_or_no(feedback, where)) entry.feedback.reset();
    } else {
      check_keys(feedback, where, {"beta", "reset"});
      if (feedback["beta"]) {
        try {
          entry.feedback->beta = feedback["beta"].as<double>();
        } catch (const YAML::Exception&) {
          entry.feedback->beta = -1;
        }
        if (!(entry.feedback->beta >= 0 && entry.feedback->beta < 1)) throw Error(ErrorKind::Usage, where + ".beta must be a number from 0 to below 1").at(place_of(feedback, where));
      }
      if (feedback["reset"]) entry.feedback->reset = whole_number(feedback["reset"], where + ".reset");
      if (entry.feedback->reset < 1) throw Error(ErrorKind::Usage, where + ".reset must be at least 1 step").at(place_of(feedback, where));
    }
  }
  return entry;
}

StatePlace parse_state(const YAML::Node& node, const std::string& key, const Topology& topology) {
  StatePlace place;
  if (node.IsScalar()) {
    place.level = topology.find(node.as<std::string>());
    return place;
  }
  check_keys(node, key, key == "placement.secondary" ? std::vector<std::string>{"shard", "tier", "storage", "forward"} : std::vector<std::string>{"shard", "tier", "storage"});
  if (node["shard"]) place.level = topology.find(scalar(node["shard"], key + ".shard"));
  if (node["tier"]) {
    const std::string tier = scalar(node["tier"], key + ".tier");
    if (tier == "device") place.tier = Tier::Device;
    else if (tier == "host") place.tier = Tier::Host;
    else if (tier == "disk") place.tier = Tier::Disk;
    else throw Error(ErrorKind::Usage, fmt::format("unknown tier '{}'", printable(tier))).at(place_of(node["tier"], key + ".tier")).expected("device, host or disk");
  }
  if (node["storage"]) place.storage = parse_codec_table(node["storage"], key + ".storage", {});
  return place;
}

PlacementRow parse_row(const YAML::Node& node, const Topology& topology) {
  check_keys(node, "placement", {"groups", "weights", "secondary", "gradients", "optimizer", "wire", "keep"});
  PlacementRow row;
  if (node["groups"]) row.pattern = scalar(node["groups"], "placement.groups");
  if (node["weights"]) row.weights = parse_state(node["weights"], "placement.weights", topology);
  if (node["gradients"]) row.gradients = parse_state(node["gradients"], "placement.gradients", topology);
  if (node["optimizer"]) row.optimizer = parse_state(node["optimizer"], "placement.optimizer", topology);
  if (const YAML::Node secondary = node["secondary"]) {
    row.secondary = parse_state(secondary, "placement.secondary", topology);
    if (secondary.IsMap() && secondary["forward"]) row.secondary_forward = yes_or_no(secondary["forward"], "placement.secondary.forward");
  }
  if (node["keep"]) row.keep = yes_or_no(node["keep"], "placement.keep");
  if (node["wire"]) {
    check_keys(node["wire"], "placement.wire", {"forward", "backward", "reduce", "reduce_on", "refresh"});
    for (size_t m = 0; m < row.wire.size(); ++m) {
      const std::string name = name_of(static_cast<Movement>(m));
      const YAML::Node codecs = node["wire"][name];
      if (!codecs) continue;
      const std::string key = "placement.wire." + name;
      if (codecs.IsSequence()) {
        for (const auto& codec : codecs) row.wire[m].push_back(parse_entry(codec, key, topology));
        if (row.wire[m].empty()) throw Error(ErrorKind::Usage, key + " is an empty list").at(place_of(codecs, key));
      } else {
        row.wire[m].push_back(parse_entry(codecs, key, topology));
      }
    }
  }
  check_legal(row, topology);
  return row;
}

}  // namespace

std::vector<std::string> placement_presets() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(usage_of(preset));
  return names;
}

std::vector<std::string> split_placements(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(' || c == '{' || c == '[') - (c == ')' || c == '}' || c == ']');
    if (c == ',' && depth <= 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = trimmed(part);
  std::erase(parts, "");
  return parts;
}

Placement parse_placement_preset(const std::string& text, const Topology& topology) {
  const std::string whole = trimmed(text);
  const size_t open = whole.find('(');
  const bool has_arguments = open != std::string::npos;
  const std::string name = trimmed(whole.substr(0, open));
  const bool closed = !has_arguments || (whole.back() == ')' && whole.find_first_of("()", open + 1) == whole.size() - 1);
  const std::string expected = fmt::format("one of {}, or a table", fmt::join(placement_presets(), "; "));
  if (name.empty() || !closed) throw Error(ErrorKind::Usage, fmt::format("'{}' is no placement", printable(text))).at("placement").expected(expected);
  const auto found = std::find_if(presets().begin(), presets().end(), [&](const Preset& preset) { return name == preset.name; });
  if (found == presets().end()) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.push_back(preset.name);
    const std::string near = nearest(name, names);
    throw Error(ErrorKind::Usage, fmt::format("unknown placement '{}'", printable(name)))
        .at("placement")
        .expected(expected)
        .cure(near.empty() ? "" : "did you mean '" + near + "'?");
  }
  const Preset& preset = *found;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::Usage, fmt::format("placement '{}' {}", name, what))
        .at("placement")
        .found(text)
        .expected(preset.levels.empty() ? usage_of(preset) : fmt::format("{} with levels of {}", usage_of(preset), topology.text()));
  };
  std::map<std::string, std::string> values(preset.options.begin(), preset.options.end());
  std::set<std::string> given;
  size_t position = 0;
  if (has_arguments) {
    const std::string inside = trimmed(whole.substr(open + 1, whole.size() - open - 2));
    if (inside.empty()) refuse(preset.levels.empty() ? "takes no level" : "needs a level");
    for (const std::string& argument : split_placements(inside)) {
      const size_t equal = argument.find('=');
      if (equal == std::string::npos) {
        if (position == preset.levels.size()) refuse(preset.levels.empty() ? "takes no level" : fmt::format("takes {} level(s)", preset.levels.size()));
        topology.find(argument);
        values[preset.levels[position++]] = argument;
        continue;
      }
      const auto option = values.find(trimmed(argument.substr(0, equal)));
      const auto is_option = [&](const auto& one) { return option->first == one.first; };
      if (option == values.end() || std::none_of(preset.options.begin(), preset.options.end(), is_option)) refuse(fmt::format("has no option '{}'", printable(argument)));
      given.insert(option->first);
      option->second = trimmed(argument.substr(equal + 1));
      if (option->second.find_first_of("{}[]:,&*#") != std::string::npos || option->second.empty()) refuse(fmt::format("cannot take '{}'", printable(argument)));
    }
  }
  if (position < preset.levels.size()) refuse(fmt::format("needs {}", preset.levels.size() == 1 ? "a level" : fmt::format("{} levels", preset.levels.size())));
  std::string table = preset.table;
  for (int pass = 0; pass < 2; ++pass) {  // a default may itself name a level
    std::string filled;
    for (size_t at = 0; at < table.size();) {
      const char mark = table[at];
      if (mark != '$' && mark != '?') {
        filled += table[at++];
        continue;
      }
      size_t end = at + 1;
      while (end < table.size() && (std::isalnum(static_cast<unsigned char>(table[end])) || table[end] == '_')) ++end;
      const std::string argument = table.substr(at + 1, end - at - 1);
      if (mark == '$') filled += values.at(argument);
      if (mark == '?' && given.contains(argument)) filled += fmt::format(", {}: {}", argument, values.at(argument));
      at = end;
    }
    table = filled;
  }
  return Placement{whole, {parse_row(YAML::Load(table), topology)}};
}

Placement parse_placement_text(const std::string& text, const Topology& topology) {
  const std::string whole = trimmed(text);
  if (whole.empty() || (whole.front() != '{' && whole.front() != '[')) return parse_placement_preset(text, topology);
  YAML::Node node;
  try {
    node = YAML::Load(whole);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::Usage, fmt::format("'{}' is no table", printable(whole)))
        .at("placement")
        .found(error.what())
        .expected("a table in braces, as in {weights: LEVEL, gradients: LEVEL, optimizer: world}");
  }
  Placement placement = parse_placement(node, topology);
  placement.name = whole;
  return placement;
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
