// A configuration read: defaults, then a file, then the command line are laid over the keys of the schema, strictly.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ballast/base/config.h"

namespace ballast {

namespace {

void check_bounds(const ConfigKey& key, const YamlNode& node) {
  const double value = key.number_of(node.scalar);
  const bool low = key.least && (key.above_least ? !(value > *key.least) : value < *key.least);
  if (low || (key.most && value > *key.most)) {
    throw Error(ErrorKind::Usage, "out of range")
        .found(node.scalar)
        .expected(key.bounds() + (key.unit.empty() ? "" : " " + key.unit));
  }
}

const char* example_of(ConfigType type) {
  switch (type) {
    case ConfigType::Flag:
      return "true or false";
    case ConfigType::Count:
      return "a whole number such as 100, 10k, 2M";
    case ConfigType::Number:
      return "a number such as 6e-4";
    case ConfigType::Bytes:
      return "bytes such as 200MB, 4GiB";
    case ConfigType::Rate:
      return "a rate such as 200MB/s, 1Gbit";
    case ConfigType::Time:
      return "a time such as 3ms, 2h";
    case ConfigType::Texts:
      return "a list of texts such as [a.jsonl, b.jsonl]";
    case ConfigType::Numbers:
      return "a list of numbers such as [0.9, 0.95]";
    default:
      return "text";
  }
}

// Throws Error(Usage) without a place if the node is not of the key's type and within its bounds.
void check_type(const ConfigKey& key, const YamlNode& node) {
  const auto wrong = [&](const YamlNode& found) {
    return Error(ErrorKind::Usage, fmt::format("not a {}", name_of(key.type)))
        .found(found.describe())
        .expected(example_of(key.type));
  };
  switch (key.type) {
    case ConfigType::Tree:
      return;
    case ConfigType::Flag:
      if (node.is_scalar() && !node.quoted && (node.scalar == "true" || node.scalar == "false")) return;
      throw Error(ErrorKind::Usage, "not a flag").found(node.describe()).expected("true or false");
    case ConfigType::Text:
      if (!node.is_scalar()) throw wrong(node);
      if (node.scalar.empty()) throw Error(ErrorKind::Usage, "an empty text").cure("leave the key out, or write null");
      return;
    case ConfigType::Choice: {
      if (node.is_scalar() && std::find(key.allowed.begin(), key.allowed.end(), node.scalar) != key.allowed.end())
        return;
      const std::string near = node.is_scalar() ? nearest(node.scalar, key.allowed) : "";
      throw Error(ErrorKind::Usage, "not one of the choices")
          .found(node.describe())
          .expected(fmt::format("{}", fmt::join(key.allowed, ", ")))
          .cure(near.empty() ? "" : "did you mean '" + near + "'?");
    }
    case ConfigType::Texts:
      if (node.is_scalar() && !node.scalar.empty()) return;
      if (!node.is_list()) throw wrong(node);
      for (const YamlNode& item : node.items) {
        if (!item.is_scalar() || item.scalar.empty()) throw wrong(item);
      }
      return;
    case ConfigType::Numbers:
      if (!node.is_list()) throw wrong(node);
      for (const YamlNode& item : node.items) {
        if (!item.is_scalar() || item.quoted) throw wrong(item);
        check_bounds(key, item);
      }
      return;
    case ConfigType::Number:
      if (!node.is_scalar() || node.quoted) throw wrong(node);
      check_bounds(key, node);
      return;
    default:
      if (!node.is_scalar()) throw wrong(node);
      check_bounds(key, node);
      return;
  }
}

std::string joined(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

}  // namespace

Error config_error(const Mark& mark, std::string_view path, const std::string& what) {
  return Error(ErrorKind::Usage, what).at(mark.text(), std::string(path));
}

// Lays one layer (defaults, file, command line) over the values.
class ConfigReader {
 public:
  ConfigReader(Config& config, const ConfigSchema& schema) : config_(config), schema_(schema) {
    config_.schema_ = &schema;
    config_.values_.resize(schema.keys().size());
    for (size_t i = 0; i < schema.keys().size(); ++i) {
      if (schema.defaults()[i].is_null()) continue;
      config_.values_[i].node = schema.defaults()[i];
      check_type(schema.keys()[i], schema.defaults()[i]);
    }
  }

  void file(const YamlNode& root) {
    if (root.is_null()) return;
    if (!root.is_map())
      throw config_error(root.mark, "", "a configuration is a map of sections")
          .found(root.describe())
          .expected("lines such as 'model: {preset: gpt2-10m}'");
    layer_ = Origin::Kind::File;
    start_layer();
    section("", root);
  }

  // "a.b=value". A later argument wins over an earlier one.
  void argument(const std::string& text) {
    layer_ = Origin::Kind::CommandLine;
    start_layer();
    const std::string source = "command line '" + printable(text) + "'";
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(ErrorKind::Usage, "not an override").at(source).expected("key=value, such as optimizer.lr=3e-4");
    }
    const std::string path = text.substr(0, equals);
    YamlNode value = parse_yaml(std::string_view(text).substr(equals + 1), source, true);
    if (text.size() == equals + 1)
      throw Error(ErrorKind::Usage, "no value").at(source).cure("write " + printable(path) + "=null to unset it");
    place(path, value, value.mark);
  }

 private:
  void start_layer() { given_.assign(schema_.keys().size(), false); }

  void section(const std::string& prefix, const YamlNode& map) {
    for (const YamlEntry& entry : map.entries) {
      const std::string path = joined(prefix, entry.key);
      if (entry.key.find('.') != std::string::npos || !(schema_.find(path) != nullptr || schema_.is_section(path))) {
        throw config_error(entry.mark, prefix, fmt::format("unknown key '{}'", printable(entry.key)))
            .cure(schema_.suggestion(prefix, entry.key));
      }
      place(path, entry.value, entry.mark);
    }
  }

  void place(const std::string& path, const YamlNode& value, const Mark& mark) {
    if (const int64_t index = schema_.index(path); index >= 0) return leaf(static_cast<size_t>(index), value, mark);
    if (!path.empty() && schema_.is_section(path)) {
      if (value.is_map()) return section(path, value);
      if (value.is_null() && layer_ == Origin::Kind::File) return;  // a heading with nothing below it
      throw config_error(value.mark, path, fmt::format("'{}' is a section", path))
          .found(value.describe())
          .expected(fmt::format("a map with some of {}", fmt::join(schema_.children(path), ", ")));
    }
    inside_tree(path, value, mark);
  }

  // An override below a Tree key: "topology.pair=4".
  void inside_tree(const std::string& path, const YamlNode& value, const Mark& mark) {
    size_t cut = path.size();
    while ((cut = path.rfind('.', cut - 1)) != std::string::npos && cut > 0) {
      const int64_t index = schema_.index(path.substr(0, cut));
      if (index < 0) continue;
      const ConfigKey& key = schema_.keys()[static_cast<size_t>(index)];
      if (key.type != ConfigType::Tree) break;
      YamlNode tree = config_.values_[static_cast<size_t>(index)].node;
      YamlNode* node = &tree;
      if (std::count(path.begin(), path.end(), '.') > 16) throw config_error(mark, path, "nested too deep");
      for (size_t begin = cut + 1; begin <= path.size();) {
        const size_t end = std::min(path.find('.', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        if (name.empty()) break;
        if (node->is_null()) node->kind = YamlNode::Kind::Map, node->mark = mark;
        if (!node->is_map())
          throw config_error(mark, path, fmt::format("'{}' is {} here, not a map", key.path, node->describe()))
              .cure("give the whole value: " + key.path + "={...}");
        if (node->find(name) == nullptr) node->entries.push_back(YamlEntry{name, mark, YamlNode{.mark = mark}});
        node = node->find(name);
        begin = end + 1;
      }
      *node = value;
      return leaf(static_cast<size_t>(index), tree, mark);
    }
    const size_t dot = path.rfind('.');
    std::string prefix = dot == std::string::npos ? "" : path.substr(0, dot);
    std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    if (!schema_.is_section(prefix)) prefix = "", name = path;
    throw config_error(mark, "", fmt::format("unknown key '{}'", printable(path)))
        .cure(schema_.suggestion(prefix, name));
  }

  void leaf(size_t index, const YamlNode& value, const Mark& mark) {
    const ConfigKey& key = schema_.keys()[index];
    Config::Value& slot = config_.values_[index];
    if (value.is_null()) {
      if (!key.default_text.empty()) {
        throw config_error(mark, key.path, "no value").cure("remove the key to get its default, " + key.default_text);
      }
      slot.node = YamlNode{.mark = value.mark};
      slot.origin = origin_of(mark);
      return;
    }
    try {
      check_type(key, value);
    } catch (const Error& error) {
      Error located = error;
      throw std::move(located).at(value.mark.text(), key.path);
    }
    if (!key.rivalry.empty()) displace_rivals(index, mark);
    slot.node = value;
    slot.origin = origin_of(mark);
    given_[index] = true;
  }

  void displace_rivals(size_t index, const Mark& mark) {
    const ConfigKey& key = schema_.keys()[index];
    for (size_t i = 0; i < schema_.keys().size(); ++i) {
      if (i == index || schema_.keys()[i].rivalry != key.rivalry) continue;
      if (given_[i]) {
        throw config_error(mark, key.path,
                           fmt::format("'{}' and '{}' exclude each other", schema_.keys()[i].path, key.path))
            .found("both; the other is at " + config_.values_[i].node.mark.text())
            .cure("keep one of them");
      }
      config_.values_[i] = Config::Value{};
    }
  }

  Origin origin_of(const Mark& mark) const {
    return layer_ == Origin::Kind::CommandLine ? Origin{layer_, "command line"} : Origin{layer_, mark.line_text()};
  }

  Config& config_;
  const ConfigSchema& schema_;
  Origin::Kind layer_ = Origin::Kind::Default;
  std::vector<bool> given_;  // by the layer that is being laid
};

Config Config::parse(const ConfigSchema& schema, std::string_view text, const std::string& file_name,
                     std::span<const std::string> overrides) {
  Config config;
  ConfigReader reader(config, schema);
  reader.file(parse_yaml(text, file_name));
  for (const std::string& argument : overrides) reader.argument(argument);
  return config;
}

}  // namespace ballast
