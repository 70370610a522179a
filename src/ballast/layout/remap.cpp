#include "ballast/layout/remap.h"

#include <algorithm>
#include <numeric>

#include "ballast/base/check.h"

namespace ballast {

namespace {

// Gives `extra` ranks of the unit [begin, begin + group_size(level)) one token more than `base`.
void give_extra(std::span<const int64_t> held, int64_t base, int64_t extra, int level, int64_t begin, const Topology& topology, std::span<int64_t> shares) {
  if (extra == 0) return;
  if (level == kSelf) {
    shares[static_cast<size_t>(begin)] += extra;
    return;
  }
  const int64_t size = topology.group_size(level - 1);
  struct Child {
    int64_t begin, surplus, extra;
  };
  std::vector<Child> children;
  for (int64_t child = 0; child < topology.level(level).size; ++child) {
    const int64_t first = begin + child * size;
    const auto tokens = held.subspan(static_cast<size_t>(first), static_cast<size_t>(size));
    children.push_back({first, std::accumulate(tokens.begin(), tokens.end(), int64_t{0}) - base * size, 0});
  }
  // A token kept by a unit with more than its share is one that need not cross.
  std::vector<size_t> order(children.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return children[a].surplus > children[b].surplus; });
  int64_t left = extra;
  for (const bool surplus_only : {true, false}) {
    for (size_t index : order) {
      Child& child = children[index];
      const int64_t room = size - child.extra;
      const int64_t wanted = surplus_only ? std::clamp<int64_t>(child.surplus, 0, room) : room;
      const int64_t given = std::min(left, wanted);
      child.extra += given;
      left -= given;
    }
  }
  for (const Child& child : children) give_extra(held, base, child.extra, level - 1, child.begin, topology, shares);
}

// Calls visit(piece) for the parts of pieces in slots [slot, slot + count).
template <class Visit>
void each_of_slice(std::span<const Piece> pieces, int64_t slot, int64_t count, Visit&& visit) {
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    const int64_t begin = std::max(slot, at), end = std::min(slot + count, at + piece.length);
    if (begin < end) visit(Piece{piece.sample, piece.begin + begin - at, end - begin, 0});
    at += piece.length;
    if (at >= slot + count) break;
  }
}

struct Moved {
  TokenMove move;
  int level;
};

}  // namespace

std::vector<int64_t> even_shares(std::span<const int64_t> held, const Topology& topology) {
  const auto ranks = static_cast<int64_t>(held.size());
  BALLAST_CHECK(ranks == topology.ranks(), "{} ranks, topology of {}", ranks, topology.ranks());
  const int64_t total = std::accumulate(held.begin(), held.end(), int64_t{0});
  std::vector<int64_t> shares(held.size(), total / ranks);
  give_extra(held, total / ranks, total % ranks, topology.outermost(), 0, topology, shares);
  return shares;
}

std::vector<TokenMove> token_moves(std::span<const int64_t> held, std::span<const int64_t> wanted, const Topology& topology) {
  std::vector<int64_t> surplus(held.size());
  for (size_t r = 0; r < held.size(); ++r) surplus[r] = held[r] - wanted[r];
  std::vector<Moved> moves;
  for (int level = 0; level < topology.level_count(); ++level) {
    const auto unit = static_cast<size_t>(topology.group_size(level));
    for (size_t begin = 0; begin < held.size(); begin += unit) {
      size_t from = begin, to = begin;   // what is left inside a unit is all surplus or all deficit
      for (;;) {
        while (from < begin + unit && surplus[from] <= 0) ++from;
        while (to < begin + unit && surplus[to] >= 0) ++to;
        if (from == begin + unit || to == begin + unit) break;
        const int64_t count = std::min(surplus[from], -surplus[to]);
        moves.push_back({{static_cast<int64_t>(from), static_cast<int64_t>(to), count}, level});
        surplus[from] -= count;
        surplus[to] += count;
      }
    }
  }
  BALLAST_CHECK(std::all_of(surplus.begin(), surplus.end(), [](int64_t s) { return s == 0; }), "tokens held and wanted differ in number");
  std::stable_sort(moves.begin(), moves.end(), [](const Moved& a, const Moved& b) { return a.move.from < b.move.from; });
  std::vector<TokenMove> result;
  result.reserve(moves.size());
  for (const Moved& moved : moves) result.push_back(moved.move);
  return result;
}

std::vector<int64_t> tokens_by_level(std::span<const TokenMove> moves, const Topology& topology) {
  std::vector<int64_t> tokens(static_cast<size_t>(topology.level_count()), 0);
  for (const TokenMove& move : moves) tokens[static_cast<size_t>(topology.common_level(move.from, move.to))] += move.count;
  return tokens;
}

double moves_s(std::span<const TokenMove> moves, const SequenceCost& cost, const Topology& topology) {
  constexpr int64_t kExchanges = 4;   // queries, keys and values there, outputs back; the same backward
  double seconds = 0;
  for (int level = 0; level < std::min(topology.level_count(), static_cast<int>(cost.links.size())); ++level) {
    const int64_t size = topology.group_size(level - 1);
    std::vector<int64_t> out(static_cast<size_t>(topology.ranks() / size), 0), in = out;
    for (const TokenMove& move : moves) {
      if (topology.common_level(move.from, move.to) != level) continue;
      out[static_cast<size_t>(move.from / size)] += move.count;
      in[static_cast<size_t>(move.to / size)] += move.count;
    }
    const int64_t most = std::max(*std::max_element(out.begin(), out.end()), *std::max_element(in.begin(), in.end()));
    const auto bytes = static_cast<double>(most * cost.moved_bytes()) / kExchanges;
    seconds = std::max(seconds, static_cast<double>(kExchanges * cost.layer_count()) * cost.link_s(level, bytes));
  }
  return seconds;
}

void append_joined(std::vector<Piece>& pieces, const Piece& piece) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.sample == piece.sample && last.begin + last.length == piece.begin && last.padding == 0) {
      last.length += piece.length;
      last.padding = piece.padding;
      return;
    }
  }
  pieces.push_back(piece);
}

std::vector<Piece> slice(std::span<const Piece> pieces, int64_t slot, int64_t count) {
  std::vector<Piece> result;
  each_of_slice(pieces, slot, count, [&](const Piece& piece) { result.push_back(piece); });
  return result;
}

void make_remap(Layout& layout, int64_t index, const Topology& topology) {
  std::vector<int64_t> held;
  held.reserve(layout.ranks.size());
  for (const auto& rank : layout.ranks) held.push_back(rank[static_cast<size_t>(index)].slots());
  const std::vector<int64_t> shares = even_shares(held, topology);
  const std::vector<TokenMove> moves = token_moves(held, shares, topology);
  if (moves.empty()) return;
  const auto batch_of = [&](int64_t rank) -> MicroBatchLayout& { return layout.ranks[static_cast<size_t>(rank)][static_cast<size_t>(index)]; };
  // A rank keeps the first of its tokens, and its cut sequences stand first: what is sent are whole sequences as far as there are any.
  std::vector<int64_t> filled(held.size()), sent(held.size());
  std::vector<size_t> leaving(held.size(), 1), arriving(held.size(), 1);   // runs, with the own one
  for (const TokenMove& move : moves) ++arriving[static_cast<size_t>(move.from)], ++leaving[static_cast<size_t>(move.to)];
  for (size_t r = 0; r < held.size(); ++r) {
    MicroBatchLayout& batch = batch_of(static_cast<int64_t>(r));
    const int64_t kept = std::min(held[r], shares[r]);
    batch.attended = std::move(batch.pieces);
    batch.pieces.clear();
    batch.pieces.reserve(batch.attended.size() + leaving[r] - 1);
    each_of_slice(batch.attended, 0, kept, [&](const Piece& piece) { batch.pieces.push_back(piece); });
    batch.leave.reserve(leaving[r]), batch.arrive.reserve(arriving[r]);
    if (kept > 0) {
      batch.leave.push_back({static_cast<int64_t>(r), 0, kept});
      batch.arrive.push_back({static_cast<int64_t>(r), 0, kept});
    }
    filled[r] = sent[r] = kept;
  }
  for (const TokenMove& move : moves) {
    MicroBatchLayout& from = batch_of(move.from);
    MicroBatchLayout& to = batch_of(move.to);
    int64_t& slot = sent[static_cast<size_t>(move.from)];
    int64_t& place = filled[static_cast<size_t>(move.to)];
    each_of_slice(from.attended, slot, move.count, [&](const Piece& piece) { append_joined(to.pieces, piece); });
    from.arrive.push_back({move.to, slot, move.count});
    to.leave.push_back({move.from, place, move.count});
    slot += move.count;
    place += move.count;
  }
}

void make_remap(Layout& layout, const Topology& topology) {
  for (int64_t index = 0; index < layout.micro_batches(); ++index) make_remap(layout, index, topology);
}

}  // namespace ballast
