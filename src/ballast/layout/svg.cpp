#include "ballast/layout/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "ballast/base/units.h"
#include "ballast/layout/parts.h"

namespace ballast {

namespace {

constexpr int64_t kMostRanks = 64, kMostBatches = 8, kMostRings = 24;   // that a page shows
constexpr double kLeft = 70, kWide = 760, kCostWide = 130, kGap = 30;   // pixels
constexpr double kPage = kLeft + kWide + kGap + kCostWide + 20;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// Neighbouring numbers far apart on the colour circle (the golden angle), some darker than others.
std::string colour(size_t number) {
  return fmt::format("hsl({},{}%,{}%)", static_cast<int>(static_cast<double>(number) * 137.508) % 360, 55 + number / 5 % 3 * 10, 58 + number / 3 % 3 * 8);
}

struct Canvas {
  std::string body;
  double y = 0;

  void text(double x, double at, const std::string& words, const std::string& style = "") {
    body += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, at, style.empty() ? "" : " " + style, escaped(words));
  }
  void box(double x, double at, double width, double height, const std::string& fill, const std::string& title, bool hatched) {
    body += fmt::format("<g><title>{}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>", escaped(title), x, at, width, height, fill);
    if (hatched) body += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"url(#cut)\"/>", x, at, width, height);
    body += "</g>\n";
  }
};

// Pieces side by side; those of cut sequences hatched, the first `numbered` slots with the number of their ring where there is room.
void draw_pieces(Canvas& canvas, std::span<const Piece> pieces, double at, double height, double slot_wide, const std::map<uint64_t, size_t>& number,
                 const std::map<uint64_t, int64_t>& ring) {
  double x = kLeft;
  for (const Piece& piece : pieces) {
    const double width = static_cast<double>(piece.length) * slot_wide;
    const auto cut = ring.find(piece.sample);
    const std::string title = fmt::format("sample {}, tokens {} to {}{}", piece.sample, piece.begin, piece.begin + piece.length - 1,
                                          cut == ring.end() ? "" : fmt::format(", ring {}", cut->second));
    canvas.box(x, at, std::max(0.3, width - 0.4), height, colour(number.at(piece.sample)), title, cut != ring.end());
    if (cut != ring.end() && width > 14 && height >= 9) canvas.text(x + 2, at + height - 2, std::to_string(cut->second), "class=\"ring\"");
    x += width;
    const double padded = static_cast<double>(piece.padding) * slot_wide;
    if (piece.padding > 0) canvas.box(x, at, padded, height, "url(#padding)", fmt::format("{} slots of padding", piece.padding), false);
    x += padded;
  }
}

// What the bar beside a rank stands for: all compute, or attention alone where tokens move.
double rank_s(const MicroBatchLayout& batch, const SequenceCost& cost) {
  return attention_s(batch, cost) + (batch.remapped() ? 0 : cost.linear_s(static_cast<double>(batch.slots())));
}

void draw_batch(Canvas& canvas, const Layout& layout, size_t m, const LayoutLimits& limits, const Topology& topology, const std::map<uint64_t, size_t>& number) {
  const auto ranks = std::min(kMostRanks, static_cast<int64_t>(layout.ranks.size()));
  std::map<int64_t, std::shared_ptr<const CutSequence>> cuts;   // by order
  std::map<uint64_t, int64_t> ring;                             // sample -> order
  int64_t widest = 1;
  double slowest = 1e-300, all = 0;
  bool moves = false;
  for (const auto& rank : layout.ranks) {
    const MicroBatchLayout& batch = rank[m];
    widest = std::max({widest, batch.slots(), batch.attention_slots()});
    moves |= batch.remapped();
    for (const CutPart& part : batch.cuts) cuts[part.cut->order] = part.cut, ring[part.cut->sample] = part.cut->order;
    const double seconds = rank_s(batch, limits.cost);
    slowest = std::max(slowest, seconds);
    all += seconds;
  }
  const double bar = ranks > 32 ? 7 : 11, row = moves ? 2 * bar + 6 : bar + 4, slot_wide = kWide / static_cast<double>(widest);
  const double cost_left = kLeft + kWide + kGap, mean = all / static_cast<double>(layout.ranks.size());
  canvas.text(kLeft, canvas.y + 12, fmt::format("micro-batch {}: {}", m + 1, moves ? "attention above, linear modules below" : "the same tokens in attention and linear modules"), "class=\"head\"");
  canvas.text(cost_left, canvas.y + 12, moves ? "attention" : "compute", "class=\"head\"");
  canvas.y += 20;
  const double top = canvas.y;
  for (int64_t r = 0; r < ranks; ++r) {
    const MicroBatchLayout& batch = layout.ranks[static_cast<size_t>(r)][m];
    if (topology.level_count() > 1 && r > 0 && r % topology.group_size(0) == 0) {
      canvas.body += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"unit\"/>\n", kLeft - 60, kPage - 20, canvas.y - 2, canvas.y - 2);
    }
    canvas.text(kLeft - 60, canvas.y + bar - 1, fmt::format("rank {}", r));
    draw_pieces(canvas, batch.attention_pieces(), canvas.y, bar, slot_wide, number, ring);
    if (moves) draw_pieces(canvas, batch.pieces, canvas.y + bar + 1, bar - 2, slot_wide, number, ring);
    const double seconds = rank_s(batch, limits.cost);
    canvas.box(cost_left, canvas.y, kCostWide * seconds / slowest, bar, "#7a8794", format_time(seconds), false);
    canvas.y += row;
  }
  const double mean_x = cost_left + kCostWide * mean / slowest;
  canvas.body += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" class=\"mean\"/>\n", mean_x, top - 3, canvas.y);
  if (ranks < static_cast<int64_t>(layout.ranks.size())) {
    canvas.text(kLeft, canvas.y + 12, fmt::format("and {} ranks more", static_cast<int64_t>(layout.ranks.size()) - ranks));
    canvas.y += 18;
  }
  int64_t listed = 0;
  for (const auto& [order, cut] : cuts) {
    if (listed == kMostRings) {
      canvas.text(kLeft, canvas.y + 12, fmt::format("and {} cut sequences more", static_cast<int64_t>(cuts.size()) - listed));
      canvas.y += 14;
      break;
    }
    std::string members;
    for (size_t i = 0; i < cut->ranks.size() && i < 24; ++i) members += fmt::format("{}{}", i == 0 ? "" : " ", cut->ranks[i]);
    if (cut->ranks.size() > 24) members += fmt::format(" ... ({} ranks)", cut->ranks.size());
    canvas.box(kLeft, canvas.y + 4, 9, 9, colour(number.at(cut->sample)), "", true);
    canvas.text(kLeft + 14, canvas.y + 12, fmt::format("{}  sample {}, {} tokens: {}{} within {} over ranks {}", order, cut->sample, cut->length, name_of(cut->sharing),
                                                       cut->team > 1 ? fmt::format(" in teams of {}", cut->team) : "", topology.name_of(cut->level), members));
    canvas.y += 14;
    ++listed;
  }
  canvas.y += 16;
}

}  // namespace

std::string layout_svg(const Layout& layout, const LayoutReport& report, const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  std::map<uint64_t, size_t> number;   // of samples, in the order of ranks: neighbours differ in colour
  for (const auto& rank : layout.ranks) {
    for (const MicroBatchLayout& batch : rank) {
      for (const Piece& piece : batch.attention_pieces()) number.emplace(piece.sample, number.size());
    }
  }
  Canvas canvas;
  canvas.y = 24;
  canvas.text(10, canvas.y, fmt::format("{}: {} sequences, {} tokens over {}", layout.name, number.size(), report.tokens, topology.text()), "class=\"title\"");
  canvas.text(10, canvas.y + 18, fmt::format("most loaded rank {:.3f} of the mean, tokens {:.3f}, padding {:.1f} %; predicted step {} (at least {})", report.cost_imbalance, report.token_imbalance,
                                             100 * report.padding_share(), format_time(report.step_s), format_time(report.lower_bound_s)));
  canvas.y += 32;
  const auto batches = std::min(kMostBatches, layout.micro_batches());
  for (int64_t m = 0; m < batches; ++m) draw_batch(canvas, layout, static_cast<size_t>(m), limits, topology, number);
  if (batches < layout.micro_batches()) {
    canvas.text(kLeft, canvas.y + 12, fmt::format("and {} micro-batches more", layout.micro_batches() - batches));
    canvas.y += 20;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 {0} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
             "<style>.title{{font-size:15px;font-weight:bold}}.head{{font-weight:bold}}.ring{{font-size:9px}}.unit{{stroke:#999;stroke-dasharray:3 3}}.mean{{stroke:#c0392b}}</style>\n"
             "<defs><pattern id=\"cut\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"1.5\" height=\"5\" fill=\"#000\" fill-opacity=\"0.35\"/></pattern>\n"
             "<pattern id=\"padding\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" height=\"4\" fill=\"#eee\"/><circle cx=\"2\" cy=\"2\" r=\"0.8\" fill=\"#aaa\"/></pattern></defs>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
             kPage, canvas.y + 10) +
         canvas.body + "</svg>\n";
}

}  // namespace ballast
