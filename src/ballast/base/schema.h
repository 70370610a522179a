#pragma once
// The table of all configuration keys: what each holds, its default, unit and meaning. One table drives the strict
// reader (config.h), the reference in docs/configuration.md, and `ballast config schema`.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/base/yaml.h"

namespace ballast {

enum class ConfigType : uint8_t {
  Flag,    // true or false
  Count,   // whole number: 100, 10k, 2M
  Number,  // 6e-4
  Text,
  Choice,   // one of `allowed`
  Bytes,    // 4GiB -> bytes
  Rate,     // 200MB/s -> bytes/s
  Time,     // 3ms -> seconds
  Texts,    // list of texts; one text is a list of one
  Numbers,  // list of numbers
  Tree      // handed through as it was written; its reader checks it
};
const char* name_of(ConfigType type);

struct ConfigKey {
  std::string path;  // "optimizer.schedule.kind"
  ConfigType type = ConfigType::Text;
  std::string default_text;  // as YAML; empty: not set
  std::string unit;          // "tokens", "steps"; for the reader only
  std::vector<std::string> allowed;
  std::string doc;
  // May differ between a run and its --resume.
  bool on_resume = false;
  // Keys with the same rivalry exclude each other; one given on the command line displaces those of the file.
  std::string rivalry;
  std::optional<double> least, most;  // inclusive bounds of Count, Number, Bytes, Rate, Time and the items of Numbers
  bool above_least = false;           // `least` itself is excluded
  std::string bounds() const;         // ">= 1", "0 to 1", ""
  // A scalar of the key's type as a number, in bytes, bytes/s or seconds where it has a unit. Throws Error(Usage) without a place.
  double number_of(const std::string& scalar) const;
};

struct ConfigSection {
  std::string name, doc;
};

class ConfigSchema {
 public:
  ConfigSchema() = default;
  // BALLAST_CHECKs that paths are unique; Config checks that defaults have their type.
  ConfigSchema(std::vector<ConfigSection> sections, std::vector<ConfigKey> keys);
  const std::vector<ConfigKey>& keys() const { return keys_; }
  const std::vector<ConfigSection>& sections() const { return sections_; }
  const std::vector<YamlNode>& defaults() const { return defaults_; }  // as keys(); Null: not set
  const ConfigKey* find(std::string_view path) const;
  int64_t index(std::string_view path) const;                         // -1 if there is none
  bool is_section(std::string_view path) const;                       // some key lies below it; "" is one
  std::vector<std::string> children(std::string_view section) const;  // names directly below it
  // "did you mean 'optimizer.lr'?", or the keys there are: for an unknown `name` inside `section` ("" = top).
  std::string suggestion(const std::string& section, const std::string& name) const;

  std::string text() const;      // annotated YAML of all defaults
  std::string markdown() const;  // the reference
  std::string json() const;

 private:
  std::vector<ConfigSection> sections_;
  std::vector<ConfigKey> keys_;
  std::vector<YamlNode> defaults_;
};

}  // namespace ballast
