#include "ballast/graph/row_moves.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/layout/route.h"
#include "ballast/plan/tags.h"

namespace ballast {

namespace {

// Messages of layouts have tags of their own half of the range. On one link lane they go in one order on all ranks, so within it a tag need not
// be unique for ever.
uint64_t layout_tag(int level, uint64_t number) { return kLayoutTag | static_cast<uint64_t>(level) << 25 | number % (uint64_t{1} << 25); }

int64_t rank_at(const CutSequence& cut, int64_t member) { return cut.ranks[static_cast<size_t>(member)]; }

}  // namespace

int64_t rows_of(const CutSequence& cut, int64_t member) {
  const auto chunks = cut.chunks(member);
  return chunks[0].length + chunks[1].length;
}

int64_t rows_of(const CutSequence& cut, const std::vector<int64_t>& members) {
  int64_t rows = 0;
  for (int64_t member : members) rows += rows_of(cut, member);
  return rows;
}

RowMoves::RowMoves(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch, int64_t segment, bool backward, std::vector<Op>& ops)
    : recipe_(recipe), rank_(rank), graph_(graph), layout_(layout), micro_batch_(micro_batch), segment_(segment), backward_(backward), ops_(ops) {}

void RowMoves::begin(const CutSequence* cut) {
  cut_ = cut;
  exchanges_ = cut == nullptr ? 1 : 0;   // 0 and 1 of no cut: into the layout of attention and out of it
}

Op RowMoves::op(std::string_view what) const {
  Op op;
  op.what = what;
  op.segment = static_cast<int32_t>(segment_);
  op.micro_batch = micro_batch_;
  if (cut_ != nullptr) op.cut = static_cast<int32_t>(cut_->order);
  return op;
}

Holding RowMoves::gather(const CutPart& part, const std::vector<int64_t>& members, const std::vector<BufferId>& tensors, const char* name) {
  const CutSequence& cut = *part.cut;
  ++exchanges_;
  if (members.size() == 1) return {members, tensors, part.slot};
  Holding all{members, {}, 0};
  for (BufferId id : tensors) all.tensors.push_back(like(fmt::format("{}.gathered", name), id, rows_of(cut, members)));
  std::vector<Transfer> sends, receives;
  int64_t row = 0;
  for (int64_t member : members) {
    sends.push_back({rank_at(cut, member), part.slot, rows_of(cut, part.member)});
    receives.push_back({rank_at(cut, member), row, rows_of(cut, member)});
    row += rows_of(cut, member);
  }
  exchange(cut.level, tensors, all.tensors, std::move(sends), std::move(receives));
  return all;
}

Holding RowMoves::receive(const CutPart& part, const Holding& mine, int64_t to, const std::vector<int64_t>& members, int64_t from, const char* name) {
  const CutSequence& cut = *part.cut;
  ++exchanges_;
  if (to < 0) return mine;
  Holding arrived{members, {}, 0};
  for (BufferId id : mine.tensors) arrived.tensors.push_back(like(fmt::format("{}.arrived", name), id, rows_of(cut, members)));
  exchange(cut.level, mine.tensors, arrived.tensors, {{rank_at(cut, to), mine.base, rows_of(cut, mine.members)}}, {{rank_at(cut, from), 0, rows_of(cut, members)}});
  return arrived;
}

Holding RowMoves::pass_on(const CutPart& part, const CutRole& role, const Holding& mine, size_t step, const char* name) {
  const CutSequence& cut = *part.cut;
  ++exchanges_;
  Holding arrived{role.stations[step % role.stations.size()], {}, 0};
  for (BufferId id : mine.tensors) arrived.tensors.push_back(like(fmt::format("{}.arrived", name), id, rows_of(cut, arrived.members)));
  const int64_t to = rank_at(cut, role.next), from = rank_at(cut, role.previous);
  std::vector<Transfer> sends, receives;
  if (!goes_by_route(cut, recipe_.topology, rank_, to)) sends.push_back({to, mine.base, rows_of(cut, mine.members)});
  if (!goes_by_route(cut, recipe_.topology, from, rank_)) receives.push_back({from, 0, rows_of(cut, arrived.members)});
  if (!sends.empty() || !receives.empty()) {
    exchange(cut.level, mine.tensors, arrived.tensors, std::move(sends), std::move(receives));
    ops_.back().slice = static_cast<int32_t>(step);
  }
  if (cut.routed) route(part, step, &mine, &arrived, dtype(mine.tensors[0]));
  return arrived;
}

void RowMoves::pass_between_others(const CutPart& part) {
  const auto steps = static_cast<size_t>(part.cut->members() / part.cut->team / part.cut->team);
  exchanges_ = 3;   // of the members before the ring: queries, keys, shift
  const auto hop = [&](size_t step, DType dtype) {
    ++exchanges_;
    route(part, step, nullptr, nullptr, dtype);
  };
  for (size_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) hop(step + 1, recipe_.compute);
    if (backward_ && step > 0) hop(step, DType::Float32);
  }
  if (backward_ && steps > 1) hop(steps, DType::Float32);
}

// The hops of the rings between units that concern this rank, each over all links of a unit: to the first rank of each link within the
// unit, across, and to the receiver within its unit. Whatever this rank does for several hops goes in one exchange each.
void RowMoves::route(const CutPart& part, size_t step, const Holding* mine, const Holding* arrived, DType dtype) {
  const CutSequence& cut = *part.cut;
  struct Phase {
    std::vector<BufferId> from, to;
    std::vector<Transfer> sends, receives;
    // Adds a transfer of a pair of tensors, keys and values.
    void send(const std::vector<BufferId>& pair, int64_t rank, int64_t row, int64_t rows) {
      sends.push_back({rank, row, rows, static_cast<int64_t>(from.size()) / 2});
      from.insert(from.end(), pair.begin(), pair.end());
    }
    void receive(const std::vector<BufferId>& pair, int64_t rank, int64_t row, int64_t rows) {
      receives.push_back({rank, row, rows, static_cast<int64_t>(to.size()) / 2});
      to.insert(to.end(), pair.begin(), pair.end());
    }
  };
  Phase spread, across, collect;
  int level = 0;
  for (const RoutedHop& hop : routed_hops(cut, recipe_.topology, rank_)) {
    level = hop.level;
    const int64_t rows = rows_of(cut, role_of(cut, hop.to_member).stations[step % static_cast<size_t>(hop.steps)]);
    const auto links = static_cast<int64_t>(hop.out.size());
    for (int64_t link = 0; link < links; ++link) {
      const int64_t begin = link * rows / links, count = (link + 1) * rows / links - begin;
      const int64_t out = hop.out[static_cast<size_t>(link)], in = hop.in[static_cast<size_t>(link)];
      const auto wire = [&] {
        const int64_t width = recipe_.model.config.kv_width();
        return std::vector{buffer("route", dtype, count, width), buffer("route", dtype, count, width)};
      };
      if (rank_ == out) {
        const bool own = rank_ == hop.from;
        const std::vector<BufferId> held = own ? mine->tensors : wire();
        if (!own) spread.receive(held, hop.from, 0, count);
        across.send(held, in, own ? mine->base + begin : 0, count);
      } else if (rank_ == hop.from) {
        spread.send(mine->tensors, out, mine->base + begin, count);
      }
      if (rank_ == in) {
        const bool own = rank_ == hop.to;
        const std::vector<BufferId> held = own ? arrived->tensors : wire();
        across.receive(held, out, own ? begin : 0, count);
        if (!own) collect.send(held, hop.to, 0, count);
      } else if (rank_ == hop.to) {
        collect.receive(arrived->tensors, in, begin, count);
      }
    }
  }
  const auto go = [&](Phase& phase, int lane_level) {
    if (phase.sends.empty() && phase.receives.empty()) return;
    exchange(lane_level, std::move(phase.from), std::move(phase.to), std::move(phase.sends), std::move(phase.receives), 2);
    ops_.back().slice = static_cast<int32_t>(step);
  };
  go(spread, level - 1);
  go(across, level);
  go(collect, level - 1);
}

std::vector<BufferId> RowMoves::parts_of(const CutPart& part, const Holding& held, const char* name) {
  const CutSequence& cut = *part.cut;
  const int64_t rows = rows_of(cut, part.member);
  std::vector<BufferId> parts;
  for (BufferId id : held.tensors) parts.push_back(like(name, id, static_cast<int64_t>(held.members.size()) * rows));
  std::vector<Transfer> sends, receives;
  int64_t row = held.base, index = 0;
  for (int64_t member : held.members) {
    sends.push_back({rank_at(cut, member), row, rows_of(cut, member)});
    receives.push_back({rank_at(cut, member), index++ * rows, rows});
    row += rows_of(cut, member);
  }
  exchange(cut.level, held.tensors, parts, std::move(sends), std::move(receives));
  return parts;
}

void RowMoves::return_sums(const CutPart& part, const Holding& sums, const std::vector<BufferId>& targets) {
  const bool alone = sums.members.size() == 1;
  ++exchanges_;
  Op op = this->op(what::kSumRows);
  op.inputs = alone ? sums.tensors : parts_of(part, sums, "gradient.parts");
  op.begin = alone ? sums.base : 0;
  op.parts = static_cast<int64_t>(sums.members.size());
  op.part = rows_of(*part.cut, part.member);
  op.outputs = targets;
  op.into_begin = part.slot;
  push(std::move(op));
}

Holding RowMoves::heads_of(const CutPart& part, const std::vector<BufferId>& tensors) {
  const CutSequence& cut = *part.cut;
  const int64_t members = cut.members(), rows = rows_of(cut, part.member);
  Holding all;
  std::vector<BufferId> split;
  std::vector<Transfer> sends, receives;
  int64_t row = 0;
  for (int64_t member = 0; member < members; ++member) {
    all.members.push_back(member);
    sends.push_back({rank_at(cut, member), member * rows, rows});
    receives.push_back({rank_at(cut, member), row, rows_of(cut, member)});
    row += rows_of(cut, member);
  }
  for (BufferId id : tensors) {
    BALLAST_CHECK(width(id) % members == 0, "{} heads' columns over {} members", width(id), members);
    split.push_back(buffer("split", dtype(id), members * rows, width(id) / members));
    all.tensors.push_back(buffer("heads", dtype(id), row, width(id) / members));
  }
  Op op = this->op(what::kSplitHeads);
  op.inputs = tensors;
  op.outputs = split;
  op.begin = part.slot;
  op.part = rows;
  op.parts = members;
  push(std::move(op));
  ++exchanges_;
  exchange(cut.level, split, all.tensors, std::move(sends), std::move(receives));
  return all;
}

void RowMoves::tokens_of_heads(const CutPart& part, const Holding& held, const std::vector<BufferId>& targets) {
  const CutSequence& cut = *part.cut;
  ++exchanges_;
  Op op = this->op(what::kJoinHeads);
  op.inputs = parts_of(part, held, "split");
  op.outputs = targets;
  op.into_begin = part.slot;
  op.part = rows_of(cut, part.member);
  op.parts = cut.members();
  push(std::move(op));
}

std::vector<BufferId> RowMoves::change_layout(const std::vector<BufferId>& tensors, bool to_attention) {
  if (!layout_.remapped()) return tensors;
  std::vector<BufferId> changed;
  for (BufferId id : tensors) {
    const int64_t rows = to_attention ? layout_.attention_slots() : layout_.slots();
    changed.push_back(like(to_attention ? "attended" : "returned", id, rows));
    graph_.buffers.back().state = StateKind::Activations;
  }
  const auto transfers = [](const std::vector<TokenRun>& runs) {
    std::vector<Transfer> rows;
    for (const TokenRun& run : runs) rows.push_back({run.rank, run.slot, run.count});
    return rows;
  };
  exchange(recipe_.topology.outermost(), tensors, changed, transfers(to_attention ? layout_.leave : layout_.arrive),
           transfers(to_attention ? layout_.arrive : layout_.leave));
  return changed;
}

void RowMoves::exchange(int level, std::vector<BufferId> from, std::vector<BufferId> to, std::vector<Transfer> sends, std::vector<Transfer> receives,
                            int64_t together) {
  Op op = this->op(what::kExchange);
  op.kind = OpKind::Exchange;
  op.lane = link_lane(std::max(level, 0));
  const auto order = static_cast<uint64_t>(cut_ == nullptr ? 4095 : cut_->order);
  const auto layers = static_cast<uint64_t>(recipe_.model.config.layers);
  const auto layer = static_cast<uint64_t>(recipe_.model.segments[static_cast<size_t>(segment_)].layer);
  const uint64_t number = (static_cast<uint64_t>(micro_batch_) * layers + layer) * 2 + (backward_ ? 1 : 0);
  op.tag = layout_tag(std::max(level, 0), (number * 4096 + order) * 64 + static_cast<uint64_t>(exchanges_));
  op.parts = together > 0 ? together : static_cast<int64_t>(std::max(from.size(), to.size()));
  op.inputs = std::move(from);
  op.outputs = std::move(to);
  op.sends = std::move(sends);
  op.receives = std::move(receives);
  for (const Transfer& send : op.sends) if (send.rank != rank_) op.bytes += sent_bytes(graph_, op, send);
  push(std::move(op));
}

BufferId RowMoves::buffer(const std::string& name, DType dtype, int64_t rows, int64_t width, StateKind state) {
  Buffer buffer;
  buffer.name = fmt::format("{}.{}/{}", recipe_.model.segments[static_cast<size_t>(segment_)].name(), name, micro_batch_);
  buffer.state = state;
  buffer.dtype = dtype;
  buffer.shape = {rows, width};
  graph_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(graph_.buffers.size() - 1);
}

BufferId RowMoves::like(const std::string& name, BufferId other, int64_t rows, std::optional<DType> dtype) {
  return buffer(name, dtype.value_or(this->dtype(other)), rows, width(other));
}

DType RowMoves::dtype(BufferId id) const { return graph_.buffers[static_cast<size_t>(id)].dtype; }

int64_t RowMoves::width(BufferId id) const { return graph_.buffers[static_cast<size_t>(id)].shape.back(); }

}  // namespace ballast
