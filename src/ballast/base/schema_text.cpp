// The three faces of the schema: annotated YAML for the terminal, Markdown for the reference, JSON for tools.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ballast/base/schema.h"

namespace ballast {

namespace {

std::string kind_of(const ConfigKey& key) {
  std::string out = key.allowed.empty() ? name_of(key.type) : fmt::format("{}", fmt::join(key.allowed, " | "));
  if (!key.unit.empty()) out += ", " + key.unit;
  if (const std::string bounds = key.bounds(); !bounds.empty()) out += ", " + bounds;
  return out;
}

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

std::string ConfigSchema::text() const {
  std::string out = "# Every key with its default; a key without one is shown as a comment.\n";
  std::vector<std::string> open;  // sections that enclose the previous line
  for (const ConfigKey& key : keys_) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= key.path.size();) {
      const size_t end = std::min(key.path.find('.', begin), key.path.size());
      parts.push_back(key.path.substr(begin, end - begin));
      begin = end + 1;
    }
    const std::string name = parts.back();
    parts.pop_back();
    size_t same = 0;
    while (same < parts.size() && same < open.size() && parts[same] == open[same]) ++same;
    for (size_t depth = same; depth < parts.size(); ++depth) {
      if (depth == 0) out += "\n";
      out += fmt::format("{:{}}{}:\n", "", depth * 2, parts[depth]);
    }
    if (parts.empty() && (open.size() > 0)) out += "\n";
    open = parts;
    const std::string indent(parts.size() * 2, ' ');
    out += key.default_text.empty() ? fmt::format("{}# {}:", indent, name)
                                    : fmt::format("{}{}: {}", indent, name, key.default_text);
    out += fmt::format("  # {}. {}{}\n", kind_of(key), key.doc, key.on_resume ? " May change on --resume." : "");
  }
  return out;
}

std::string ConfigSchema::markdown() const {
  std::string out =
      "# Configuration reference\n\n"
      "Written by `ballast config schema --markdown`. A configuration is a YAML map of the sections below; every key "
      "may also be given on the command\n"
      "line as `section.key=value`, where the value is YAML. Unknown keys, wrong types and keys written twice are "
      "refused with file, line and column.\n"
      "Whole numbers take `k`, `M`, `G`; bytes `KB`, `MB`, `GB` (powers of 1000) and `KiB`, `MiB`, `GiB` (powers of "
      "1024); rates `MB/s` or `Mbit/s`; times `us`, `ms`, `s`, `min`, `h`.\n"
      "Relative paths start at the working directory. *Resume* says whether the key may differ when a run goes on with "
      "`--resume`.\n";
  std::string previous;
  for (const ConfigKey& key : keys_) {
    const std::string section = key.path.substr(0, key.path.find('.'));
    if (section != previous) {
      const auto found =
          std::find_if(sections_.begin(), sections_.end(), [&](const ConfigSection& s) { return s.name == section; });
      out += fmt::format("\n## {}\n\n{}\n\n| key | value | default | resume | meaning |\n|---|---|---|---|---|\n",
                         section, found == sections_.end() ? "" : found->doc);
      previous = section;
    }
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path, cell(kind_of(key)),
                       key.default_text.empty() ? "" : "`" + cell(key.default_text) + "`", key.on_resume ? "yes" : "",
                       cell(key.doc));
  }
  return out;
}

std::string ConfigSchema::json() const {
  nlohmann::ordered_json keys = nlohmann::ordered_json::array();
  for (const ConfigKey& key : keys_) {
    nlohmann::ordered_json entry{{"path", key.path}, {"type", name_of(key.type)}};
    entry["default"] = key.default_text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(key.default_text);
    if (!key.unit.empty()) entry["unit"] = key.unit;
    if (!key.allowed.empty()) entry["allowed"] = key.allowed;
    if (key.least) entry["least"] = *key.least;
    if (key.above_least) entry["above_least"] = true;
    if (key.most) entry["most"] = *key.most;
    if (!key.rivalry.empty()) entry["excludes_others_of"] = key.rivalry;
    entry["on_resume"] = key.on_resume;
    entry["doc"] = key.doc;
    keys.push_back(std::move(entry));
  }
  return nlohmann::ordered_json{{"keys", std::move(keys)}}.dump(2) + "\n";
}

}  // namespace ballast
