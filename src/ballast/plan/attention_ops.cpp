#include "ballast/plan/attention_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/plan/activations.h"
#include "ballast/plan/route.h"

namespace ballast {

namespace {

// Messages of layouts have tags of their own half of the range. On one link lane they go in one order on all ranks, so within it a tag need not
// be unique for ever.
uint64_t layout_tag(int level, uint64_t number) { return kLayoutTag | static_cast<uint64_t>(level) << 25 | number % (uint64_t{1} << 25); }

int64_t rows_of(const CutSequence& cut, int64_t member) {
  const auto chunks = cut.chunks(member);
  return chunks[0].length + chunks[1].length;
}

int64_t rows_of(const CutSequence& cut, const std::vector<int64_t>& members) {
  int64_t rows = 0;
  for (int64_t member : members) rows += rows_of(cut, member);
  return rows;
}

int64_t rank_at(const CutSequence& cut, int64_t member) { return cut.ranks[static_cast<size_t>(member)]; }

}  // namespace

struct AttentionOps::Pass {
  int64_t segment;
  bool backward;
  Kept& kept;
  std::vector<Op>& ops;
  const CutSequence* cut = nullptr;    // what operations at the moment are about; none: all tokens
  int64_t exchanges = 0;               // about it so far, counted alike by all ranks: also those that a member leaves out
  void begin(const CutSequence* about) {
    cut = about;
    exchanges = about == nullptr ? 1 : 0;   // 0 and 1 of no cut: into the layout of attention and out of it
  }
  // Sums of cut sequences in fp32, a row for each slot before the whole ones; the very outputs where those are fp32.
  BufferId sums = kNoBuffer;           // of o, or of dq
  BufferId delta = kNoBuffer, d_o = kNoBuffer;
  std::array<BufferId, 3> d_qkv{kNoBuffer, kNoBuffer, kNoBuffer};
};

AttentionOps::AttentionOps(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch)
    : recipe_(recipe), rank_(rank), graph_(graph), layout_(layout), micro_batch_(micro_batch), layers_(static_cast<size_t>(recipe.model.config.layers)) {
  for (const CutPart& part : layout.cuts) {
    if (part.member >= 0) cut_rows_ = std::max(cut_rows_, part.slot + rows_of(*part.cut, part.member));
  }
  int64_t slot = 0;
  for (const Piece& piece : layout.attention_pieces()) {
    const int64_t count = piece.length + piece.padding;
    if (slot >= cut_rows_ && count > 0) {
      const RowSpan span{slot, count, piece.begin};
      whole_.push_back({{span}, {span}, piece.sample});
    }
    slot += count;
  }
}

// --- forward -------------------------------------------------------------------------------------------------------------------------------

BufferId AttentionOps::forward(int64_t s, const std::array<BufferId, 3>& qkv, std::vector<Op>& ops) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  Kept& kept = layers_[static_cast<size_t>(segment.layer)];
  Pass pass{s, false, kept, ops};
  const std::vector<BufferId> attended = change_layout(pass, {qkv[0], qkv[1], qkv[2]}, true);
  std::copy(attended.begin(), attended.end(), kept.qkv.begin());
  const int64_t slots = layout_.attention_slots();
  const ModelConfig& config = recipe_.model.config;
  kept.o = buffer(pass, "o", recipe_.compute, slots, config.query_width(), StateKind::Activations);
  kept.lse = buffer(pass, "lse", DType::Float32, slots, config.heads, StateKind::Activations);
  const bool narrow = recipe_.compute != DType::Float32;
  pass.sums = narrow && cut_rows_ > 0 ? buffer(pass, "o.sum", DType::Float32, cut_rows_, config.query_width()) : kept.o;
  for (const CutPart& part : layout_.cuts) {
    pass.begin(part.cut.get());
    if (part.member < 0) {
      pass_between_others(pass, part);
    } else if (part.cut->sharing == Sharing::Heads) {
      attend_heads(pass, part);
    } else {
      attend_cut(pass, part);
    }
  }
  pass.begin(nullptr);
  attend_whole(pass);
  return change_layout(pass, {kept.o}, false).front();
}

void AttentionOps::attend_whole(Pass& pass) {
  Op op = compute(pass, what::kAttend);
  op.units = whole_;
  op.part = -1;
  op.inputs.assign(pass.kept.qkv.begin(), pass.kept.qkv.end());
  op.outputs = {pass.kept.o, pass.kept.lse};
  count_flops(op, pass);
  pass.ops.push_back(std::move(op));
}

void AttentionOps::attend_cut(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const CutRole role = role_of(cut, part.member);
  const Kept& kept = pass.kept;
  const bool team = role.queries.size() > 1;
  const Holding queries = gather(pass, part, role.queries, {kept.qkv[0]}, "q");
  Holding keys = gather(pass, part, role.keys, {kept.qkv[1], kept.qkv[2]}, "kv");
  keys = receive(pass, part, keys, role.shift_to, role.stations.front(), role.shift_from, "kv");
  // Partial results: in place for the own queries, in a buffer of the team's rows otherwise.
  Holding partial{role.queries, {pass.sums, kept.lse}, part.slot};
  if (team) {
    const int64_t rows = rows_of(cut, role.queries);
    partial = {role.queries, {like(pass, "o.team", pass.sums, rows, DType::Float32), like(pass, "lse.team", kept.lse, rows)}, 0};
  }
  for (size_t step = 0; step < role.stations.size(); ++step) {
    Holding coming;
    if (step + 1 < role.stations.size()) coming = pass_on(pass, part, role, keys, step + 1, "kv");
    Op op = compute(pass, what::kAttend);
    op.units = {unit(cut, queries, keys)};
    op.begin = keys.base;
    op.part = rows_of(cut, keys.members);
    op.inputs = {queries.tensors[0], keys.tensors[0], keys.tensors[1]};
    op.outputs = partial.tensors;
    op.accumulate = step > 0;
    op.slice = static_cast<int32_t>(step);
    count_flops(op, pass);
    pass.ops.push_back(std::move(op));
    keys = std::move(coming);
  }
  if (team) {
    // Every member of the team has a part of the result for every query of the team.
    const std::vector<BufferId> parts = parts_of(pass, part, partial, "parts");
    Op merge = compute(pass, what::kMerge);
    merge.inputs = parts;
    merge.outputs = {kept.o, kept.lse};
    merge.part = rows_of(cut, part.member);
    merge.into_begin = part.slot;
    merge.parts = static_cast<int64_t>(role.queries.size());
    pass.ops.push_back(std::move(merge));
  } else if (pass.sums != kept.o) {
    sum_rows(pass, {pass.sums}, 1, part.slot, {kept.o}, part.slot, rows_of(cut, part.member));
  }
}

// All tokens of 1 / P of the heads on every member.
void AttentionOps::attend_heads(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const int64_t members = cut.members(), all = cut.length;
  const Kept& kept = pass.kept;
  const Holding held = heads_of(pass, part, {kept.qkv[0], kept.qkv[1], kept.qkv[2]});
  const std::vector<BufferId> result{buffer(pass, "o.heads", recipe_.compute, all, width(kept.o) / members), buffer(pass, "lse.heads", DType::Float32, all, width(kept.lse) / members)};
  Op op = compute(pass, what::kAttend);
  op.units = {unit(cut, held, held)};
  op.inputs = held.tensors;
  op.outputs = result;
  op.index = part.member;
  op.part = -1;
  op.parts = members;
  count_flops(op, pass);
  pass.ops.push_back(std::move(op));
  tokens_of_heads(pass, part, {held.members, result, 0}, {kept.o, kept.lse});
}

// --- backward ------------------------------------------------------------------------------------------------------------------------------

std::array<BufferId, 3> AttentionOps::backward(int64_t s, BufferId d_o, std::vector<Op>& ops) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  Kept& kept = layers_[static_cast<size_t>(segment.layer)];
  Pass pass{s, true, kept, ops};
  pass.d_o = change_layout(pass, {d_o}, true).front();
  const int64_t slots = layout_.attention_slots();
  pass.delta = buffer(pass, "delta", DType::Float32, slots, recipe_.model.config.heads);
  Op delta = compute(pass, what::kAttendDelta);
  delta.inputs = {kept.o, pass.d_o};
  delta.outputs = {pass.delta};
  pass.ops.push_back(std::move(delta));
  for (size_t i = 0; i < 3; ++i) pass.d_qkv[i] = like(pass, fmt::format("gradient.{}", "qkv"[i]), kept.qkv[i], slots);
  const bool narrow = recipe_.compute != DType::Float32;
  pass.sums = narrow && cut_rows_ > 0 ? buffer(pass, "gradient.q.sum", DType::Float32, cut_rows_, recipe_.model.config.query_width()) : pass.d_qkv[0];
  for (const CutPart& part : layout_.cuts) {
    pass.begin(part.cut.get());
    if (part.member < 0) {
      pass_between_others(pass, part);
    } else if (part.cut->sharing == Sharing::Heads) {
      attend_heads_backward(pass, part);
    } else {
      attend_cut_backward(pass, part);
    }
  }
  pass.begin(nullptr);
  attend_whole_backward(pass);
  const std::vector<BufferId> back = change_layout(pass, {pass.d_qkv[0], pass.d_qkv[1], pass.d_qkv[2]}, false);
  return {back[0], back[1], back[2]};
}

void AttentionOps::attend_whole_backward(Pass& pass) {
  Op op = compute(pass, what::kAttendBackward);
  op.units = whole_;
  op.part = -1;
  op.inputs = {pass.kept.qkv[0], pass.kept.qkv[1], pass.kept.qkv[2], pass.kept.lse, pass.delta, pass.d_o};
  op.outputs.assign(pass.d_qkv.begin(), pass.d_qkv.end());
  count_flops(op, pass);
  pass.ops.push_back(std::move(op));
}

void AttentionOps::attend_cut_backward(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const CutRole role = role_of(cut, part.member);
  const Kept& kept = pass.kept;
  const bool team = role.queries.size() > 1;
  const Holding queries = gather(pass, part, role.queries, {kept.qkv[0], kept.lse, pass.delta, pass.d_o}, "q");
  Holding keys = gather(pass, part, role.keys, {kept.qkv[1], kept.qkv[2]}, "kv");
  keys = receive(pass, part, keys, role.shift_to, role.stations.front(), role.shift_from, "kv");
  Holding dq{role.queries, {pass.sums}, part.slot};
  if (team) dq = {role.queries, {like(pass, "gradient.q.team", pass.sums, rows_of(cut, role.queries), DType::Float32)}, 0};
  Holding sums;   // gradients of the keys at hand, from all who had them so far
  const size_t steps = role.stations.size();
  for (size_t step = 0; step < steps; ++step) {
    Holding coming;
    if (step + 1 < steps) coming = pass_on(pass, part, role, keys, step + 1, "kv");
    const int64_t rows = rows_of(cut, role.stations[step]);
    const Holding mine{role.stations[step],
                       {like(pass, "gradient.k.part", kept.qkv[1], rows, DType::Float32), like(pass, "gradient.v.part", kept.qkv[2], rows, DType::Float32)}, 0};
    Op op = compute(pass, what::kAttendBackward);
    op.units = {unit(cut, queries, keys)};
    op.begin = keys.base;
    op.part = rows;
    op.inputs = {queries.tensors[0], keys.tensors[0], keys.tensors[1], queries.tensors[1], queries.tensors[2], queries.tensors[3]};
    op.outputs = {dq.tensors[0], mine.tensors[0], mine.tensors[1]};
    op.accumulate = step > 0;
    op.slice = static_cast<int32_t>(step);
    count_flops(op, pass);
    pass.ops.push_back(std::move(op));
    if (step == 0) {
      sums = mine;
    } else {  // they travelled while this step was computed
      sums = pass_on(pass, part, role, sums, step, "gradient.kv");
      Op add = compute(pass, what::kAdd);
      add.inputs = mine.tensors;
      add.outputs = sums.tensors;
      pass.ops.push_back(std::move(add));
    }
    keys = std::move(coming);
  }
  if (steps > 1) sums = pass_on(pass, part, role, sums, steps, "gradient.kv");
  sums = receive(pass, part, sums, role.shift_from, role.keys, role.shift_to, "gradient.kv");
  return_sums(pass, part, sums, {pass.d_qkv[1], pass.d_qkv[2]});
  if (team || pass.sums != pass.d_qkv[0]) return_sums(pass, part, dq, {pass.d_qkv[0]});
}

void AttentionOps::attend_heads_backward(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const Kept& kept = pass.kept;
  const Holding held = heads_of(pass, part, {kept.qkv[0], kept.qkv[1], kept.qkv[2], kept.lse, pass.delta, pass.d_o});
  std::vector<BufferId> gradients;
  for (size_t i = 0; i < 3; ++i) gradients.push_back(like(pass, "gradient.heads", held.tensors[i], cut.length));
  Op op = compute(pass, what::kAttendBackward);
  op.units = {unit(cut, held, held)};
  op.inputs = held.tensors;
  op.outputs = gradients;
  op.index = part.member;
  op.part = -1;
  op.parts = cut.members();
  count_flops(op, pass);
  pass.ops.push_back(std::move(op));
  tokens_of_heads(pass, part, {held.members, gradients, 0}, {pass.d_qkv[0], pass.d_qkv[1], pass.d_qkv[2]});
}

// --- movements -----------------------------------------------------------------------------------------------------------------------------

// The members' rows of the given tensors together; this member's own rows where they are if it is the only one.
AttentionOps::Holding AttentionOps::gather(Pass& pass, const CutPart& part, const std::vector<int64_t>& members, const std::vector<BufferId>& tensors, const char* name) {
  const CutSequence& cut = *part.cut;
  ++pass.exchanges;
  if (members.size() == 1) return {members, tensors, part.slot};
  Holding all{members, {}, 0};
  for (BufferId id : tensors) all.tensors.push_back(like(pass, fmt::format("{}.gathered", name), id, rows_of(cut, members)));
  std::vector<Transfer> sends, receives;
  int64_t row = 0;
  for (int64_t member : members) {
    sends.push_back({rank_at(cut, member), part.slot, rows_of(cut, part.member)});
    receives.push_back({rank_at(cut, member), row, rows_of(cut, member)});
    row += rows_of(cut, member);
  }
  exchange(pass, cut.level, tensors, all.tensors, std::move(sends), std::move(receives));
  return all;
}

// Gives what is held to one member and takes what another one holds, of `members`. Nobody (-1): keeps what it has.
AttentionOps::Holding AttentionOps::receive(Pass& pass, const CutPart& part, const Holding& mine, int64_t to, const std::vector<int64_t>& members, int64_t from,
                                            const char* name) {
  const CutSequence& cut = *part.cut;
  ++pass.exchanges;
  if (to < 0) return mine;
  Holding arrived{members, {}, 0};
  for (BufferId id : mine.tensors) arrived.tensors.push_back(like(pass, fmt::format("{}.arrived", name), id, rows_of(cut, members)));
  exchange(pass, cut.level, mine.tensors, arrived.tensors, {{rank_at(cut, to), mine.base, rows_of(cut, mine.members)}}, {{rank_at(cut, from), 0, rows_of(cut, members)}});
  return arrived;
}

// One hop of the ring: gives what is held to the next member and takes the holding of step `step` (modulo the ring) from the one before.
AttentionOps::Holding AttentionOps::pass_on(Pass& pass, const CutPart& part, const CutRole& role, const Holding& mine, size_t step, const char* name) {
  const CutSequence& cut = *part.cut;
  ++pass.exchanges;
  Holding arrived{role.stations[step % role.stations.size()], {}, 0};
  for (BufferId id : mine.tensors) arrived.tensors.push_back(like(pass, fmt::format("{}.arrived", name), id, rows_of(cut, arrived.members)));
  const int64_t to = rank_at(cut, role.next), from = rank_at(cut, role.previous);
  std::vector<Transfer> sends, receives;
  if (!goes_by_route(cut, recipe_.topology, rank_, to)) sends.push_back({to, mine.base, rows_of(cut, mine.members)});
  if (!goes_by_route(cut, recipe_.topology, from, rank_)) receives.push_back({from, 0, rows_of(cut, arrived.members)});
  if (!sends.empty() || !receives.empty()) {
    exchange(pass, cut.level, mine.tensors, arrived.tensors, std::move(sends), std::move(receives));
    pass.ops.back().slice = static_cast<int32_t>(step);
  }
  if (cut.routed) route(pass, part, step, &mine, &arrived, graph_.buffers[static_cast<size_t>(mine.tensors[0])].dtype);
  return arrived;
}

// A rank that is no member but whose link is used: the same hops in the same order as the members'.
void AttentionOps::pass_between_others(Pass& pass, const CutPart& part) {
  const auto steps = static_cast<size_t>(part.cut->members() / part.cut->team / part.cut->team);
  pass.exchanges = 3;   // of the members before the ring: queries, keys, shift
  const auto hop = [&](size_t step, DType dtype) {
    ++pass.exchanges;
    route(pass, part, step, nullptr, nullptr, dtype);
  };
  for (size_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) hop(step + 1, recipe_.compute);
    if (pass.backward && step > 0) hop(step, DType::Float32);
  }
  if (pass.backward && steps > 1) hop(steps, DType::Float32);
}

// The hops of the rings between units that concern this rank, each over all links of a unit: to the first rank of each link within the
// unit, across, and to the receiver within its unit. Whatever this rank does for several hops goes in one exchange each.
void AttentionOps::route(Pass& pass, const CutPart& part, size_t step, const Holding* mine, const Holding* arrived, DType dtype) {
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
        return std::vector{buffer(pass, "route", dtype, count, width), buffer(pass, "route", dtype, count, width)};
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
    exchange(pass, lane_level, std::move(phase.from), std::move(phase.to), std::move(phase.sends), std::move(phase.receives), 2);
    pass.ops.back().slice = static_cast<int32_t>(step);
  };
  go(spread, level - 1);
  go(across, level);
  go(collect, level - 1);
}

// Rows that members of a group hold for each other go to their owners: this member's, as all of them have them, one part after the other.
std::vector<BufferId> AttentionOps::parts_of(Pass& pass, const CutPart& part, const Holding& held, const char* name) {
  const CutSequence& cut = *part.cut;
  const int64_t rows = rows_of(cut, part.member);
  std::vector<BufferId> parts;
  for (BufferId id : held.tensors) parts.push_back(like(pass, name, id, static_cast<int64_t>(held.members.size()) * rows));
  std::vector<Transfer> sends, receives;
  int64_t row = held.base, index = 0;
  for (int64_t member : held.members) {
    sends.push_back({rank_at(cut, member), row, rows_of(cut, member)});
    receives.push_back({rank_at(cut, member), index++ * rows, rows});
    row += rows_of(cut, member);
  }
  exchange(pass, cut.level, held.tensors, parts, std::move(sends), std::move(receives));
  return parts;
}

void AttentionOps::return_sums(Pass& pass, const CutPart& part, const Holding& sums, const std::vector<BufferId>& targets) {
  const int64_t rows = rows_of(*part.cut, part.member);
  ++pass.exchanges;
  if (sums.members.size() == 1) {
    sum_rows(pass, sums.tensors, 1, sums.base, targets, part.slot, rows);
  } else {
    sum_rows(pass, parts_of(pass, part, sums, "gradient.parts"), static_cast<int64_t>(sums.members.size()), 0, targets, part.slot, rows);
  }
}

// This member's heads of all tokens, from all members.
AttentionOps::Holding AttentionOps::heads_of(Pass& pass, const CutPart& part, const std::vector<BufferId>& tensors) {
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
    const DType dtype = graph_.buffers[static_cast<size_t>(id)].dtype;
    split.push_back(buffer(pass, "split", dtype, members * rows, width(id) / members));
    all.tensors.push_back(buffer(pass, "heads", dtype, row, width(id) / members));
  }
  Op op = compute(pass, what::kSplitHeads);
  op.inputs = tensors;
  op.outputs = split;
  op.begin = part.slot;
  op.part = rows;
  op.parts = members;
  pass.ops.push_back(std::move(op));
  ++pass.exchanges;
  exchange(pass, cut.level, split, all.tensors, std::move(sends), std::move(receives));
  return all;
}

// And back: this member's tokens of all heads, into its rows of the targets.
void AttentionOps::tokens_of_heads(Pass& pass, const CutPart& part, const Holding& held, const std::vector<BufferId>& targets) {
  const CutSequence& cut = *part.cut;
  ++pass.exchanges;
  Op op = compute(pass, what::kJoinHeads);
  op.inputs = parts_of(pass, part, held, "split");
  op.outputs = targets;
  op.into_begin = part.slot;
  op.part = rows_of(cut, part.member);
  op.parts = cut.members();
  pass.ops.push_back(std::move(op));
}

std::vector<BufferId> AttentionOps::change_layout(Pass& pass, const std::vector<BufferId>& tensors, bool to_attention) {
  if (!layout_.remapped()) return tensors;
  std::vector<BufferId> changed;
  for (BufferId id : tensors) {
    const int64_t rows = to_attention ? layout_.attention_slots() : layout_.slots();
    changed.push_back(like(pass, to_attention ? "attended" : "returned", id, rows));
    graph_.buffers.back().state = StateKind::Activations;
  }
  const auto transfers = [](const std::vector<TokenRun>& runs) {
    std::vector<Transfer> rows;
    for (const TokenRun& run : runs) rows.push_back({run.rank, run.slot, run.count});
    return rows;
  };
  exchange(pass, recipe_.topology.outermost(), tensors, changed, transfers(to_attention ? layout_.leave : layout_.arrive),
           transfers(to_attention ? layout_.arrive : layout_.leave));
  return changed;
}

void AttentionOps::exchange(Pass& pass, int level, std::vector<BufferId> from, std::vector<BufferId> to, std::vector<Transfer> sends, std::vector<Transfer> receives,
                            int64_t together) {
  Op op;
  op.kind = OpKind::Exchange;
  op.what = what::kExchange;
  op.lane = link_lane(std::max(level, 0));
  op.segment = static_cast<int32_t>(pass.segment);
  op.micro_batch = micro_batch_;
  if (pass.cut != nullptr) op.cut = static_cast<int32_t>(pass.cut->order);
  const auto order = static_cast<uint64_t>(pass.cut == nullptr ? 4095 : pass.cut->order);
  const auto layers = static_cast<uint64_t>(recipe_.model.config.layers);
  const auto layer = static_cast<uint64_t>(recipe_.model.segments[static_cast<size_t>(pass.segment)].layer);
  const uint64_t number = (static_cast<uint64_t>(micro_batch_) * layers + layer) * 2 + (pass.backward ? 1 : 0);
  op.tag = layout_tag(std::max(level, 0), (number * 4096 + order) * 64 + static_cast<uint64_t>(pass.exchanges));
  op.parts = together > 0 ? together : static_cast<int64_t>(std::max(from.size(), to.size()));
  op.inputs = std::move(from);
  op.outputs = std::move(to);
  op.sends = std::move(sends);
  op.receives = std::move(receives);
  for (const Transfer& send : op.sends) if (send.rank != rank_) op.bytes += sent_bytes(graph_, op, send);
  pass.ops.push_back(std::move(op));
}

// targets[i] rows [row, + rows) = the sum of the parts that stand in parts[i] from `begin` on.
void AttentionOps::sum_rows(Pass& pass, std::vector<BufferId> parts, int64_t count, int64_t begin, std::vector<BufferId> targets, int64_t row, int64_t rows) {
  Op op = compute(pass, what::kSumRows);
  op.inputs = std::move(parts);
  op.outputs = std::move(targets);
  op.begin = begin;
  op.part = rows;
  op.into_begin = row;
  op.parts = count;
  pass.ops.push_back(std::move(op));
}

// --- small parts ---------------------------------------------------------------------------------------------------------------------------

Op AttentionOps::compute(const Pass& pass, std::string_view what) const {
  Op op;
  op.what = what;
  op.segment = static_cast<int32_t>(pass.segment);
  op.micro_batch = micro_batch_;
  if (pass.cut != nullptr) op.cut = static_cast<int32_t>(pass.cut->order);
  return op;
}

// Rows of the queries as they stand in their tensors; rows of the keys from the first one held.
AttendUnit AttentionOps::unit(const CutSequence& cut, const Holding& queries, const Holding& keys) const {
  return {spans(cut, queries.members, queries.base), spans(cut, keys.members, 0), cut.sample};
}

std::vector<RowSpan> AttentionOps::spans(const CutSequence& cut, const std::vector<int64_t>& members, int64_t row) const {
  std::vector<RowSpan> spans;
  for (int64_t member : members) {
    for (const Piece& chunk : cut.chunks(member)) {
      if (chunk.length == 0) continue;
      spans.push_back({row, chunk.length, chunk.begin});
      row += chunk.length;
    }
  }
  return spans;
}

void AttentionOps::count_flops(Op& op, const Pass& pass) const {
  const ModelConfig& config = recipe_.model.config;
  const int64_t window = config.window_of(recipe_.model.segments[static_cast<size_t>(pass.segment)].layer);
  double pairs = 0;
  for (const AttendUnit& unit : op.units) pairs += visible_pairs(unit, window);
  op.flops = (pass.backward ? 8.0 : 4.0) * static_cast<double>(config.query_width() / op.parts) * pairs;
}

BufferId AttentionOps::buffer(const Pass& pass, const std::string& name, DType dtype, int64_t rows, int64_t width, StateKind state) {
  Buffer buffer;
  buffer.name = fmt::format("{}.{}/{}", recipe_.model.segments[static_cast<size_t>(pass.segment)].name(), name, micro_batch_);
  buffer.state = state;
  buffer.dtype = dtype;
  buffer.shape = {rows, width};
  graph_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(graph_.buffers.size() - 1);
}

BufferId AttentionOps::like(const Pass& pass, const std::string& name, BufferId other, int64_t rows, std::optional<DType> dtype) {
  return buffer(pass, name, dtype.value_or(graph_.buffers[static_cast<size_t>(other)].dtype), rows, width(other));
}

int64_t AttentionOps::width(BufferId id) const { return graph_.buffers[static_cast<size_t>(id)].shape.back(); }

}  // namespace ballast
