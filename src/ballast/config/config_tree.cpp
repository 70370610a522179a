#include "ballast/config/config_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ballast {

void known_keys(const YamlNode& map, const std::string& key, const std::vector<std::string>& known) {
  for (const YamlEntry& entry : map.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    const std::string near = nearest(entry.key, known);
    throw config_error(entry.mark, key, fmt::format("unknown key '{}'", printable(entry.key)))
        .expected(fmt::format("{}", fmt::join(known, ", ")))
        .cure(near.empty() ? "" : "did you mean '" + near + "'?");
  }
}

const std::string& scalar_of(const YamlNode& node, const std::string& key, const std::string& expected) {
  if (!node.is_scalar() || node.scalar.empty())
    throw config_error(node.mark, key, "not a single value").found(node.describe()).expected(expected);
  return node.scalar;
}

}  // namespace ballast
