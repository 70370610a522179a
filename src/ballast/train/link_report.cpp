#include "ballast/train/link_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ballast/base/units.h"

namespace ballast {

namespace {

bool plain_word(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto fine = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  // Words that YAML reads as something else than text.
  constexpr const char* kOthers[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), fine) &&
         std::none_of(std::begin(kOthers), std::end(kOthers), [&](const char* word) { return lower == word; });
}

std::string key_of(const std::string& name) { return plain_word(name) ? name : nlohmann::json(name).dump(-1, ' ', true); }

}  // namespace

std::string link_table(const std::vector<LinkFigures>& figures) {
  std::string text;
  for (const LinkFigures& level : figures) {
    if (level.size == 1) {
      text += fmt::format("{}: one unit, no links\n", key_of(level.name));
      continue;
    }
    text += fmt::format("{}: {} units, latency {}, {} each way\n", key_of(level.name), level.size, format_time(level.latency_s), format_rate(level.bandwidth_bytes_per_s));
    text += fmt::format("  {:>10}  {:>12}  {:>22}\n", "message", "one pair", "each unit, all at once");
    for (const LinkRate& rate : level.by_size) {
      text += fmt::format("  {:>10}  {:>12}  {:>22}\n", format_bytes(rate.bytes), format_rate(rate.pair_bytes_per_s), format_rate(rate.unit_bytes_per_s));
    }
    if (level.left_out) text += fmt::format("  {:>10}  not measured: one message would take too long\n", format_bytes(*level.left_out));
  }
  return text;
}

std::string link_yaml(const std::vector<LinkFigures>& figures, const std::string& transport) {
  std::string text = fmt::format("# Measured by ballast doctor --links over {}; bandwidth in bytes/s of each unit's link, latency in s.\n", transport);
  std::istringstream table(link_table(figures));
  for (std::string line; std::getline(table, line);) text += "# " + line + "\n";
  text += "topology:\n";
  for (const LinkFigures& level : figures) {
    text += level.size == 1 ? fmt::format("  {}: 1\n", key_of(level.name))
                            : fmt::format("  {}: {{size: {}, bandwidth: {:.4g}, latency: {:.4g}}}\n", key_of(level.name), level.size, level.bandwidth_bytes_per_s, level.latency_s);
  }
  return text;
}

nlohmann::json link_json(const std::vector<LinkFigures>& figures, const std::string& transport) {
  nlohmann::json levels = nlohmann::json::array();
  int64_t ranks = 1;
  for (const LinkFigures& level : figures) {
    ranks *= level.size;
    nlohmann::json one{{"name", level.name}, {"size", level.size}, {"latency_s", nullptr}, {"bandwidth_bytes_per_s", nullptr}, {"by_size", nlohmann::json::array()}};
    if (level.size > 1) {
      one["latency_s"] = level.latency_s;
      one["bandwidth_bytes_per_s"] = level.bandwidth_bytes_per_s;
    }
    for (const LinkRate& rate : level.by_size) {
      one["by_size"].push_back({{"bytes", rate.bytes}, {"pair_bytes_per_s", rate.pair_bytes_per_s}, {"unit_bytes_per_s", rate.unit_bytes_per_s}});
    }
    if (level.left_out) one["left_out_from_bytes"] = *level.left_out;
    levels.push_back(std::move(one));
  }
  return {{"name", "links"}, {"transport", transport}, {"ranks", ranks}, {"levels", levels}};
}

}  // namespace ballast
