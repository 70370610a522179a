#include "ballast/layout/cost_curves.h"

#include <fmt/format.h>

#include <charconv>

#include "ballast/base/error.h"
#include "ballast/base/yaml.h"

namespace ballast {

namespace {

double number_of(const YamlNode& node) {
  double value = 0;
  const char* end = node.scalar.data() + node.scalar.size();
  const auto [at, fault] = std::from_chars(node.scalar.data(), end, value);
  if (!node.is_scalar() || node.quoted || fault != std::errc() || at != end) {
    throw Error(ErrorKind::Usage, "a cost curve has something that is not a number").at(node.mark.text()).found(node.describe()).expected("a number");
  }
  return value;
}

CostCurves::Points points_of(const YamlNode& node) {
  if (!node.is_list() || node.items.empty()) {
    throw Error(ErrorKind::Usage, "a cost curve is a list of points").at(node.mark.text()).found(node.describe()).expected("[[amount, seconds], ...]");
  }
  CostCurves::Points points;
  for (const YamlNode& item : node.items) {
    if (!item.is_list() || item.items.size() != 2) {
      throw Error(ErrorKind::Usage, "a point of a cost curve is a pair").at(item.mark.text()).found(item.describe()).expected("[amount, seconds]");
    }
    points.emplace_back(number_of(item.items[0]), number_of(item.items[1]));
  }
  try {
    Curve checked(points);
  } catch (const Error& error) {
    throw Error(ErrorKind::Usage, error.summary()).at(node.mark.text()).expected("growing amounts above 0, seconds of 0 or more");
  }
  return points;
}

std::string text_of(const CostCurves::Points& points) {
  std::string text = "[";
  for (const auto& [amount, seconds] : points) text += fmt::format("{}[{}, {}]", text.size() == 1 ? "" : ", ", amount, seconds);
  return text + "]";
}

}  // namespace

std::string cost_curves_text(const CostCurves& curves) {
  std::string text = "# seconds of one layer, forward and backward: attention by tokens of a causal sequence, linear modules by tokens; links: of one transfer by bytes\n";
  if (!curves.attention.empty()) text += "attention: " + text_of(curves.attention) + "\n";
  if (!curves.linear.empty()) text += "linear: " + text_of(curves.linear) + "\n";
  if (!curves.links.empty()) text += "links:\n";
  for (const auto& [level, points] : curves.links) text += "  " + scalar_text(level) + ": " + text_of(points) + "\n";
  return text;
}

CostCurves parse_cost_curves(const std::string& text, const std::string& source) {
  const YamlNode root = parse_yaml(text, source);
  if (!root.is_map()) throw Error(ErrorKind::Usage, "a file of cost curves is a map").at(source).found(root.describe()).expected("attention, linear, links");
  CostCurves curves;
  for (const YamlEntry& entry : root.entries) {
    if (entry.key == "attention") {
      curves.attention = points_of(entry.value);
    } else if (entry.key == "linear") {
      curves.linear = points_of(entry.value);
    } else if (entry.key == "links") {
      if (!entry.value.is_map()) throw Error(ErrorKind::Usage, "links is a map from levels to curves").at(entry.value.mark.text()).found(entry.value.describe());
      for (const YamlEntry& level : entry.value.entries) curves.links.emplace_back(level.key, points_of(level.value));
    } else {
      const std::string near = nearest(entry.key, std::vector<std::string>{"attention", "linear", "links"});
      throw Error(ErrorKind::Usage, fmt::format("no cost curve is called '{}'", printable(entry.key)))
          .at(entry.mark.text())
          .expected("attention, linear, links")
          .cure(near.empty() ? "" : "did you mean '" + near + "'?");
    }
  }
  return curves;
}

void apply(const CostCurves& curves, const Topology& topology, SequenceCost& cost) {
  if (!curves.attention.empty()) {
    CostCurves::Points by_pairs;
    for (const auto& [tokens, seconds] : curves.attention) by_pairs.emplace_back(tokens * (tokens + 1) / 2, seconds);
    cost.attention = Curve(by_pairs);
  }
  if (!curves.linear.empty()) cost.linear = Curve(curves.linear);
  for (const auto& [name, points] : curves.links) {
    const int level = topology.find(name);
    if (level < 0) throw Error(ErrorKind::Usage, "a link curve is not of a level").at("links").found(printable(name)).expected(topology.text());
    if (cost.links.size() <= static_cast<size_t>(level)) cost.links.resize(static_cast<size_t>(level) + 1);
    cost.links[static_cast<size_t>(level)] = Curve(points);
  }
}

}  // namespace ballast
