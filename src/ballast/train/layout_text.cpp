#include "ballast/train/layout_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ballast/base/units.h"

namespace ballast {

namespace {

using Json = nlohmann::json;

constexpr int64_t kMostRanks = 32;   // listed; the JSON has all

// Each cut sequence of a micro-batch once.
std::vector<std::shared_ptr<const CutSequence>> cuts_of(const Layout& layout, int64_t micro_batch) {
  std::vector<std::shared_ptr<const CutSequence>> cuts;
  for (const auto& rank : layout.ranks) {
    for (const CutPart& part : rank[static_cast<size_t>(micro_batch)].cuts) if (part.member == 0) cuts.push_back(part.cut);
  }
  std::sort(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) { return a->order < b->order; });
  return cuts;
}

std::string level_name(const LayoutLimits& limits, int level) { return limits.topology && level >= 0 ? limits.topology->level(level).name : "node"; }

// How members share it: "ring of 4 over node, teams of 2, keys across, over all links".
std::string sharing_text(const CutSequence& cut, const LayoutLimits& limits) {
  return fmt::format("{} of {} over {}{}{}{}", name_of(cut.sharing), cut.members(), level_name(limits, cut.level), cut.team > 1 ? fmt::format(", teams of {}", cut.team) : "",
                     cut.keys_across ? ", keys across" : "", cut.routed ? ", over all links" : "");
}

std::string ranks_text(const std::vector<int64_t>& ranks) {
  if (ranks.size() <= 12) return fmt::format("{}", fmt::join(ranks, " "));
  return fmt::format("{} ... {}", fmt::join(ranks.begin(), ranks.begin() + 10, " "), ranks.back());
}

}  // namespace

std::string layout_text(const Layout& layout, const LayoutReport& report, const LayoutLimits& limits) {
  std::string text = fmt::format("layout      {}: {} tokens in {} slots, padding {:.2f} %, {} micro-batch(es), {} sequence(s) cut, tokens move in {}\n", report.name, report.tokens, report.slots,
                                 100 * report.padding_share(), report.micro_batches, report.cut_sequences, report.remapped_micro_batches);
  text += fmt::format("imbalance   cost {:.3f}, tokens {:.3f} (most loaded rank over the mean)\n", report.cost_imbalance, report.token_imbalance);
  text += fmt::format("predicted   {} per step without partitioning, of it {} in moves; no layout takes less than {}\n", format_time(report.step_s), format_time(report.remap_s), format_time(report.lower_bound_s));
  for (size_t l = 0; l < report.hidden_from.size(); ++l) {
    const std::string from = report.hidden_from[l] < 0 ? "never" : report.hidden_from[l] <= 1 ? "always" : fmt::format("from {} tokens on", report.hidden_from[l]);
    text += fmt::format("{:<12}attention hides what sharing over all ranks of a {} sends: {}; sent {}, moved {}{}\n", "", level_name(limits, static_cast<int>(l)), from,
                        format_bytes(static_cast<int64_t>(report.sharing_bytes[l])), format_bytes(static_cast<int64_t>(report.moved_bytes[l])),
                        report.shortest_cut[l] > 0 ? fmt::format(", shortest sequence cut there: {}", report.shortest_cut[l]) : "");
  }
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  const auto ranks = static_cast<int64_t>(layout.ranks.size());
  for (int64_t m = 0; m < report.micro_batches; ++m) {
    text += fmt::format("\nmicro-batch {}\n", m + 1);
    for (const auto& cut : cuts_of(layout, m)) {
      text += fmt::format("  sequence {:<4} {:>8} tokens  {}: ranks {}\n", cut->order, cut->length, sharing_text(*cut, limits), ranks_text(cut->ranks));
    }
    text += fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>8} {:>8}\n", "rank", "tokens", "attended", "of cut", "whole", "moved in");
    for (int64_t r = 0; r < std::min(ranks, kMostRanks); ++r) {
      const MicroBatchLayout& batch = layout.ranks[static_cast<size_t>(r)][static_cast<size_t>(m)];
      int64_t moved = 0;
      for (const TokenRun& run : batch.arrive) if (run.rank != r) moved += run.count;
      text += fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>8} {:>8}\n", r, batch.slots(), batch.attention_slots(), batch.cut_slots(), batch.whole_pieces().size(), moved);
    }
    if (ranks > kMostRanks) text += fmt::format("  and {} more ranks: --json lists all\n", ranks - kMostRanks);
  }
  return text;
}

Json layout_json(const Layout& layout, const LayoutReport& report, const LayoutLimits& limits) {
  Json json{{"name", report.name}, {"tokens", report.tokens}, {"slots", report.slots}, {"padding_share", report.padding_share()}, {"cost_imbalance", report.cost_imbalance},
            {"token_imbalance", report.token_imbalance}, {"step_s", report.step_s}, {"remap_s", report.remap_s}, {"lower_bound_s", report.lower_bound_s},
            {"cut_sequences", report.cut_sequences}, {"remapped_micro_batches", report.remapped_micro_batches}, {"notes", report.notes}};
  json["levels"] = Json::array();
  for (size_t l = 0; l < report.hidden_from.size(); ++l) {
    json["levels"].push_back({{"name", level_name(limits, static_cast<int>(l))}, {"hidden_from", report.hidden_from[l]}, {"shortest_cut", report.shortest_cut[l]},
                              {"sharing_bytes", report.sharing_bytes[l]}, {"moved_bytes", report.moved_bytes[l]}});
  }
  json["ranks"] = Json::array();
  for (const RankSeconds& rank : report.ranks) json["ranks"].push_back({{"attention_s", rank.attention}, {"linear_s", rank.linear}, {"sharing_s", rank.sharing}});
  const auto pieces_json = [](const std::vector<Piece>& pieces) {
    Json list = Json::array();
    for (const Piece& piece : pieces) list.push_back({{"sample", piece.sample}, {"begin", piece.begin}, {"length", piece.length}, {"padding", piece.padding}});
    return list;
  };
  json["micro_batches"] = Json::array();
  for (int64_t m = 0; m < report.micro_batches; ++m) {
    Json one{{"cut", Json::array()}, {"ranks", Json::array()}};
    for (const auto& cut : cuts_of(layout, m)) {
      one["cut"].push_back({{"sample", cut->sample}, {"length", cut->length}, {"sharing", name_of(cut->sharing)}, {"team", cut->team}, {"keys_across", cut->keys_across},
                            {"routed", cut->routed}, {"level", level_name(limits, cut->level)}, {"ranks", cut->ranks}});
    }
    for (const auto& rank : layout.ranks) {
      const MicroBatchLayout& batch = rank[static_cast<size_t>(m)];
      Json its{{"pieces", pieces_json(batch.pieces)}};
      if (batch.remapped()) its["attended"] = pieces_json(batch.attended);
      one["ranks"].push_back(std::move(its));
    }
    json["micro_batches"].push_back(std::move(one));
  }
  return json;
}

}  // namespace ballast
