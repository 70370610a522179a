// A resolved configuration as YAML with the origin of each value, and its reading from a file.
#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/config.h"
#include "ballast/base/files.h"

namespace ballast {

namespace {

std::string value_text(const Config& config, const std::string& path) {
  const ConfigType type = config.schema().find(path)->type;
  return type == ConfigType::Tree || type == ConfigType::Texts ? flow_text(config.node(path)) : config.canonical(path);
}

void write_section(const Config& config, const std::string& section, std::string& out) {
  for (const std::string& name : config.schema().children(section)) {
    const std::string path = section.empty() ? name : section + "." + name;
    const std::string indent(static_cast<size_t>(std::count(path.begin(), path.end(), '.')) * 2, ' ');
    if (config.schema().find(path) != nullptr) {
      if (config.has(path))
        out += fmt::format("{}{}: {}  # {}\n", indent, name, value_text(config, path), config.origin(path).text);
      continue;
    }
    std::string inside;
    write_section(config, path, inside);
    if (!inside.empty()) out += fmt::format("{}{}:\n{}", indent, name, inside);
  }
}

}  // namespace

std::string Config::write() const {
  std::string out = "# The resolved configuration; behind each value stands where it came from.\n";
  write_section(*this, "", out);
  return out;
}

Config Config::load(const ConfigSchema& schema, const std::filesystem::path& file,
                    std::span<const std::string> overrides) {
  return parse(schema, read_file(file, ReadLimits{.bytes = int64_t{1} << 20, .missing = ErrorKind::Usage}),
               file.string(), overrides);
}

}  // namespace ballast
