#include "ballast/base/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/units.h"

namespace ballast {

const char* name_of(ConfigType type) {
  switch (type) {
    case ConfigType::Flag:
      return "flag";
    case ConfigType::Count:
      return "whole number";
    case ConfigType::Number:
      return "number";
    case ConfigType::Text:
      return "text";
    case ConfigType::Choice:
      return "choice";
    case ConfigType::Bytes:
      return "bytes";
    case ConfigType::Rate:
      return "rate";
    case ConfigType::Time:
      return "time";
    case ConfigType::Texts:
      return "list of texts";
    case ConfigType::Numbers:
      return "list of numbers";
    case ConfigType::Tree:
      return "tree";
  }
  return "?";
}

std::string ConfigKey::bounds() const {
  if (least && most) return fmt::format("{}{} to {}", above_least ? "more than " : "", *least, *most);
  if (least) return fmt::format("{} {}", above_least ? ">" : ">=", *least);
  if (most) return fmt::format("<= {}", *most);
  return "";
}

double ConfigKey::number_of(const std::string& scalar) const {
  switch (type) {
    case ConfigType::Count:
      return static_cast<double>(parse_count(scalar));
    case ConfigType::Bytes:
      return static_cast<double>(parse_bytes(scalar));
    case ConfigType::Rate:
      return parse_rate(scalar);
    case ConfigType::Time:
      return parse_time(scalar);
    default:
      return parse_number(scalar);
  }
}

ConfigSchema::ConfigSchema(std::vector<ConfigSection> sections, std::vector<ConfigKey> keys)
    : sections_(std::move(sections)), keys_(std::move(keys)) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    BALLAST_CHECK(index(keys_[i].path) == static_cast<int64_t>(i), "key {} is there twice", keys_[i].path);
    BALLAST_CHECK(!is_section(keys_[i].path), "key {} is a section too", keys_[i].path);
    BALLAST_CHECK((keys_[i].type == ConfigType::Choice) == !keys_[i].allowed.empty(), "key {}: choices", keys_[i].path);
    defaults_.push_back(keys_[i].default_text.empty()
                            ? YamlNode{}
                            : parse_yaml(keys_[i].default_text, "default of " + keys_[i].path, true));
  }
}

int64_t ConfigSchema::index(std::string_view path) const {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].path == path) return static_cast<int64_t>(i);
  }
  return -1;
}

const ConfigKey* ConfigSchema::find(std::string_view path) const {
  const int64_t found = index(path);
  return found < 0 ? nullptr : &keys_[static_cast<size_t>(found)];
}

bool ConfigSchema::is_section(std::string_view path) const {
  if (path.empty()) return true;
  const std::string prefix = std::string(path) + ".";
  return std::any_of(keys_.begin(), keys_.end(), [&](const ConfigKey& key) { return key.path.starts_with(prefix); });
}

std::vector<std::string> ConfigSchema::children(std::string_view section) const {
  const std::string prefix = section.empty() ? "" : std::string(section) + ".";
  std::vector<std::string> names;
  for (const ConfigKey& key : keys_) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string name = key.path.substr(prefix.size(), key.path.find('.', prefix.size()) - prefix.size());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string ConfigSchema::suggestion(const std::string& section, const std::string& name) const {
  const std::vector<std::string> here = children(section);
  const std::string prefix = section.empty() ? "" : section + ".";
  // "modle.preset": the section is what is wrong.
  if (const size_t dot = name.find('.'); dot != std::string::npos) {
    const std::string corrected = prefix + nearest(name.substr(0, dot), here) + name.substr(dot);
    if (find(corrected) != nullptr) return fmt::format("did you mean '{}'?", corrected);
  }
  const std::string near_here = nearest(name, here);
  // A word that stands elsewhere as it is ("lr" at the top) is a better guess than a distant neighbour.
  std::string elsewhere;
  for (const ConfigKey& key : keys_) {
    const bool same = key.path == name || (key.path.size() > name.size() && key.path.ends_with("." + name));
    if (same && elsewhere.empty()) elsewhere = key.path;
  }
  if (!near_here.empty() && (elsewhere.empty() || edit_distance(name, near_here) <= 1))
    return fmt::format("did you mean '{}{}'?", prefix, near_here);
  if (!elsewhere.empty()) return fmt::format("did you mean '{}'?", elsewhere);
  return fmt::format("{} holds {}", section.empty() ? "the configuration" : "'" + section + "'", fmt::join(here, ", "));
}

}  // namespace ballast
