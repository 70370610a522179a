// The topology and the placement of a run, from the trees that its configuration holds.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "ballast/base/files.h"
#include "ballast/base/units.h"
#include "ballast/config/config_tree.h"
#include "ballast/config/run_config.h"

namespace ballast {

namespace {

// The tree as text for yaml-cpp in which every node stands in its own line and column: so that errors of other readers
// name the place of the file.
void write_in_place(const YamlNode& node, std::string& out, int64_t& line, int64_t& column) {
  const auto put = [&](const std::string& text) {
    out += text;
    column += static_cast<int64_t>(text.size());
  };
  const auto move_to = [&](const Mark& mark) {
    for (; line < mark.line; ++line, column = 1) out += '\n';
    if (line == mark.line && column < mark.column) put(std::string(static_cast<size_t>(mark.column - column), ' '));
  };
  move_to(node.mark);
  if (node.is_list()) {
    put("[");
    for (size_t i = 0; i < node.items.size(); ++i) {
      if (i > 0) put(", ");
      write_in_place(node.items[i], out, line, column);
    }
    put("]");
  } else if (node.is_map()) {
    put("{");
    for (size_t i = 0; i < node.entries.size(); ++i) {
      if (i > 0) put(", ");
      move_to(node.entries[i].mark);
      put(scalar_text(node.entries[i].key) + ": ");
      write_in_place(node.entries[i].value, out, line, column);
    }
    put("}");
  } else {
    put(node.is_null() ? "null" : scalar_text(node.scalar, node.quoted));
  }
}

}  // namespace

Topology parse_topology(const YamlNode& node) {
  const std::string expected = "a map of levels, innermost first, such as {pair: 2, node: 4}, or the path of a .yaml file that holds one";
  if (node.is_scalar() && (node.scalar.ends_with(".yaml") || node.scalar.ends_with(".yml"))) {  // a file as `ballast doctor --links` prints it: the map, or a key `topology` with it
    const YamlNode file = located(node.mark, "topology", [&] { return parse_yaml(read_file(node.scalar), node.scalar); });
    const YamlNode* inside = file.is_map() ? file.find("topology") : nullptr;
    const YamlNode& levels = inside == nullptr ? file : *inside;
    if (levels.is_scalar()) throw config_error(levels.mark, "topology", "a file that names a file").found(levels.describe()).expected("a map of levels");
    return parse_topology(levels);
  }
  if (!node.is_map())
    throw config_error(node.mark, "topology", "not a map of levels").found(node.describe()).expected(expected);
  std::vector<Level> levels;
  for (const YamlEntry& entry : node.entries) {
    const std::string key = "topology." + printable(entry.key);
    Level level;
    level.name = entry.key;
    if (const size_t colon = entry.key.find(':'); colon != std::string::npos && entry.value.is_null()) {
      throw config_error(entry.mark, key, "a level without a size")
          .found(printable(entry.key))
          .cure(fmt::format("write '{}: {}', with a space after the colon", printable(entry.key.substr(0, colon)), printable(entry.key.substr(colon + 1))));
    }
    const YamlNode* size = &entry.value;
    if (entry.value.is_map()) {
      known_keys(entry.value, key, {"size", "bandwidth", "latency", "links"});
      size = entry.value.find("size");
      if (size == nullptr)
        throw config_error(entry.value.mark, key, "a level without a size")
            .expected("{size: 2, bandwidth: 1Gbit, latency: 3ms}");
      if (const YamlNode* bandwidth = entry.value.find("bandwidth")) {
        level.bandwidth = located(bandwidth->mark, key + ".bandwidth", [&] {
          return parse_rate(scalar_of(*bandwidth, key + ".bandwidth", "a rate such as 200MB/s"));
        });
      }
      if (const YamlNode* latency = entry.value.find("latency")) {
        level.latency = located(latency->mark, key + ".latency", [&] {
          return parse_time(scalar_of(*latency, key + ".latency", "a time such as 3ms"));
        });
      }
      if (const YamlNode* links = entry.value.find("links")) {
        level.links = located(links->mark, key + ".links", [&] { return parse_count(scalar_of(*links, key + ".links", "a whole number")); });
      }
    }
    level.size = located(size->mark, key, [&] {
      return parse_count(scalar_of(*size, key, "a whole number, or {size, bandwidth, latency, links}"));
    });
    if (level.size < 1)
      throw config_error(size->mark, key, "out of range").found(size->scalar).expected(">= 1 units of the level below");
    levels.push_back(std::move(level));
  }
  return located(node.mark, "topology", [&] { return Topology(std::move(levels)); });
}

Topology topology_of(const RunConfig& config, int64_t ranks) {
  if (ranks < 0) throw Error(ErrorKind::Usage, "the number of ranks is negative").found(std::to_string(ranks));
  if (!config.topology) return Topology::flat(std::max<int64_t>(ranks, 1));
  if (ranks != 0 && config.topology->ranks() != ranks) {
    std::string cure = "change one of topology and --ranks";
    for (int level = 0; level < config.topology->outermost(); ++level) {
      const int64_t unit = config.topology->group_size(level);
      if (ranks % unit == 0) continue;
      const std::string& name = config.topology->level(level).name;
      std::string fewer = ranks < unit ? "" : fmt::format("leave {} out (--ranks {}", ranks % unit, ranks - ranks % unit);
      if (!fewer.empty() && level + 1 == config.topology->outermost()) fewer += fmt::format(" with {}: {}", config.topology->level(level + 1).name, ranks / unit);
      if (!fewer.empty()) fewer += "), or ";
      cure = fmt::format("{} is no multiple of the {} ranks of a {}, and a last {} with fewer is not supported: {}use one level, as in topology={{{}: {}}}", ranks, unit, name, name,
                         fewer, name, ranks);
      break;
    }
    throw Error(ErrorKind::Usage, "the topology and the number of ranks disagree")
        .at(config.source.place("topology"))
        .found(config.topology->text())
        .expected(fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"))
        .cure(cure);
  }
  return *config.topology;
}

Placement placement_of(const RunConfig& config, const Topology& topology) {
  const YamlNode& node = config.placement;
  return located(node.mark, "placement", [&] {
    if (node.is_scalar()) return parse_placement_preset(node.scalar, topology);
    std::string text;
    int64_t line = 1, column = 1;
    write_in_place(node, text, line, column);
    return parse_placement(YAML::Load(text), topology);
  });
}

}  // namespace ballast
