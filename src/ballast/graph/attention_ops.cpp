#include "ballast/graph/attention_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/graph/row_moves.h"

namespace ballast {

struct AttentionOps::Pass {
  Kept& kept;
  RowMoves moves;
  // Sums of cut sequences in fp32, a row for each slot before the whole ones; the very outputs where those are fp32.
  BufferId sums = kNoBuffer;           // of o, or of dq
  BufferId delta = kNoBuffer, d_o = kNoBuffer;
  std::array<BufferId, 3> d_qkv{kNoBuffer, kNoBuffer, kNoBuffer};
};

AttentionOps::AttentionOps(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch)
    : recipe_(recipe), rank_(rank), graph_(graph), layout_(layout), micro_batch_(micro_batch), cut_rows_(layout.cut_slots()),
      layers_(static_cast<size_t>(recipe.model.config.layers)) {
  int64_t slot = cut_rows_;
  for (const Piece& piece : layout.whole_pieces()) {
    const RowSpan span{slot, piece.length + piece.padding, piece.begin};
    whole_.push_back({{span}, {span}, piece.sample});
    slot += span.count;
  }
}

// --- both directions -----------------------------------------------------------------------------------------------------------------------

// Cut sequences in the order that all ranks keep, then the whole ones.
void AttentionOps::attend(Pass& pass) {
  const bool backward = pass.moves.backward();
  for (const CutPart& part : layout_.cuts) {
    pass.moves.begin(part.cut.get());
    if (part.member < 0) {
      pass.moves.pass_between_others(part);
    } else if (part.cut->sharing == Sharing::Heads) {
      backward ? attend_heads_backward(pass, part) : attend_heads(pass, part);
    } else {
      backward ? attend_cut_backward(pass, part) : attend_cut(pass, part);
    }
  }
  pass.moves.begin(nullptr);
  const Kept& kept = pass.kept;
  Op op = pass.moves.op(backward ? what::kAttendBackward : what::kAttend);
  op.units = whole_;
  op.part = -1;
  op.inputs.assign(kept.qkv.begin(), kept.qkv.end());
  if (backward) {
    op.inputs.insert(op.inputs.end(), {kept.lse, pass.delta, pass.d_o});
    op.outputs.assign(pass.d_qkv.begin(), pass.d_qkv.end());
  } else {
    op.outputs = {kept.o, kept.lse};
  }
  count_flops(op, pass);
  pass.moves.push(std::move(op));
}

BufferId AttentionOps::sums_of(Pass& pass, const char* name, BufferId output) {
  if (recipe_.compute == DType::Float32 || cut_rows_ == 0) return output;
  return pass.moves.like(name, output, cut_rows_, DType::Float32);
}

// --- forward -------------------------------------------------------------------------------------------------------------------------------

BufferId AttentionOps::forward(int64_t s, const std::array<BufferId, 3>& qkv, std::vector<Op>& ops) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  Kept& kept = layers_[static_cast<size_t>(segment.layer)];
  Pass pass{kept, {recipe_, rank_, graph_, layout_, micro_batch_, s, false, ops}};
  const std::vector<BufferId> attended = pass.moves.change_layout({qkv[0], qkv[1], qkv[2]}, true);
  std::copy(attended.begin(), attended.end(), kept.qkv.begin());
  const int64_t slots = layout_.attention_slots();
  const ModelConfig& config = recipe_.model.config;
  kept.o = pass.moves.buffer("o", recipe_.compute, slots, config.query_width(), StateKind::Activations);
  kept.lse = pass.moves.buffer("lse", DType::Float32, slots, config.heads, StateKind::Activations);
  pass.sums = sums_of(pass, "o.sum", kept.o);
  attend(pass);
  return pass.moves.change_layout({kept.o}, false).front();
}

void AttentionOps::attend_cut(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const CutRole role = role_of(cut, part.member);
  const Kept& kept = pass.kept;
  const bool team = role.queries.size() > 1;
  const Holding queries = pass.moves.gather(part, role.queries, {kept.qkv[0]}, "q");
  Holding keys = pass.moves.gather(part, role.keys, {kept.qkv[1], kept.qkv[2]}, "kv");
  keys = pass.moves.receive(part, keys, role.shift_to, role.stations.front(), role.shift_from, "kv");
  // Partial results: in place for the own queries, in a buffer of the team's rows otherwise.
  Holding partial{role.queries, {pass.sums, kept.lse}, part.slot};
  if (team) {
    const int64_t rows = rows_of(cut, role.queries);
    partial = {role.queries, {pass.moves.like("o.team", pass.sums, rows, DType::Float32), pass.moves.like("lse.team", kept.lse, rows)}, 0};
  }
  for (size_t step = 0; step < role.stations.size(); ++step) {
    Holding coming;
    if (step + 1 < role.stations.size()) coming = pass.moves.pass_on(part, role, keys, step + 1, "kv");
    Op op = pass.moves.op(what::kAttend);
    op.units = {unit(cut, queries, keys)};
    op.begin = keys.base;
    op.part = rows_of(cut, keys.members);
    op.inputs = {queries.tensors[0], keys.tensors[0], keys.tensors[1]};
    op.outputs = partial.tensors;
    op.accumulate = step > 0;
    op.slice = static_cast<int32_t>(step);
    count_flops(op, pass);
    pass.moves.push(std::move(op));
    keys = std::move(coming);
  }
  if (team) {
    // Every member of the team has a part of the result for every query of the team.
    const std::vector<BufferId> parts = pass.moves.parts_of(part, partial, "parts");
    Op merge = pass.moves.op(what::kMerge);
    merge.inputs = parts;
    merge.outputs = {kept.o, kept.lse};
    merge.part = rows_of(cut, part.member);
    merge.into_begin = part.slot;
    merge.parts = static_cast<int64_t>(role.queries.size());
    pass.moves.push(std::move(merge));
  } else if (pass.sums != kept.o) {
    pass.moves.return_sums(part, {role.queries, {pass.sums}, part.slot}, {kept.o});
  }
}

// All tokens of 1 / P of the heads on every member.
void AttentionOps::attend_heads(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const int64_t members = cut.members(), all = cut.length;
  const Kept& kept = pass.kept;
  const Holding held = pass.moves.heads_of(part, {kept.qkv[0], kept.qkv[1], kept.qkv[2]});
  const std::vector<BufferId> result{pass.moves.buffer("o.heads", recipe_.compute, all, pass.moves.width(kept.o) / members), pass.moves.buffer("lse.heads", DType::Float32, all, pass.moves.width(kept.lse) / members)};
  Op op = pass.moves.op(what::kAttend);
  op.units = {unit(cut, held, held)};
  op.inputs = held.tensors;
  op.outputs = result;
  op.index = part.member;
  op.part = -1;
  op.parts = members;
  count_flops(op, pass);
  pass.moves.push(std::move(op));
  pass.moves.tokens_of_heads(part, {held.members, result, 0}, {kept.o, kept.lse});
}

// --- backward ------------------------------------------------------------------------------------------------------------------------------

std::array<BufferId, 3> AttentionOps::backward(int64_t s, BufferId d_o, std::vector<Op>& ops) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  Kept& kept = layers_[static_cast<size_t>(segment.layer)];
  Pass pass{kept, {recipe_, rank_, graph_, layout_, micro_batch_, s, true, ops}};
  pass.d_o = pass.moves.change_layout({d_o}, true).front();
  const int64_t slots = layout_.attention_slots();
  pass.delta = pass.moves.buffer("delta", DType::Float32, slots, recipe_.model.config.heads);
  Op delta = pass.moves.op(what::kAttendDelta);
  delta.inputs = {kept.o, pass.d_o};
  delta.outputs = {pass.delta};
  pass.moves.push(std::move(delta));
  for (size_t i = 0; i < 3; ++i) pass.d_qkv[i] = pass.moves.like(fmt::format("gradient.{}", "qkv"[i]), kept.qkv[i], slots);
  pass.sums = sums_of(pass, "gradient.q.sum", pass.d_qkv[0]);
  attend(pass);
  const std::vector<BufferId> back = pass.moves.change_layout({pass.d_qkv[0], pass.d_qkv[1], pass.d_qkv[2]}, false);
  return {back[0], back[1], back[2]};
}

void AttentionOps::attend_cut_backward(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const CutRole role = role_of(cut, part.member);
  const Kept& kept = pass.kept;
  const bool team = role.queries.size() > 1;
  const Holding queries = pass.moves.gather(part, role.queries, {kept.qkv[0], kept.lse, pass.delta, pass.d_o}, "q");
  Holding keys = pass.moves.gather(part, role.keys, {kept.qkv[1], kept.qkv[2]}, "kv");
  keys = pass.moves.receive(part, keys, role.shift_to, role.stations.front(), role.shift_from, "kv");
  Holding dq{role.queries, {pass.sums}, part.slot};
  if (team) dq = {role.queries, {pass.moves.like("gradient.q.team", pass.sums, rows_of(cut, role.queries), DType::Float32)}, 0};
  Holding sums;   // gradients of the keys at hand, from all who had them so far
  const size_t steps = role.stations.size();
  for (size_t step = 0; step < steps; ++step) {
    Holding coming;
    if (step + 1 < steps) coming = pass.moves.pass_on(part, role, keys, step + 1, "kv");
    // Sums travel while this step is computed. The exchange stands ahead of it, so that what arrives has a place of its own: one behind it would be given
    // the place of the keys at hand, and wait.
    if (step > 0) sums = pass.moves.pass_on(part, role, sums, step, "gradient.kv");
    const int64_t rows = rows_of(cut, role.stations[step]);
    const Holding mine{role.stations[step],
                       {pass.moves.like("gradient.k.part", kept.qkv[1], rows, DType::Float32), pass.moves.like("gradient.v.part", kept.qkv[2], rows, DType::Float32)}, 0};
    Op op = pass.moves.op(what::kAttendBackward);
    op.units = {unit(cut, queries, keys)};
    op.begin = keys.base;
    op.part = rows;
    op.inputs = {queries.tensors[0], keys.tensors[0], keys.tensors[1], queries.tensors[1], queries.tensors[2], queries.tensors[3]};
    op.outputs = {dq.tensors[0], mine.tensors[0], mine.tensors[1]};
    op.accumulate = step > 0;
    op.slice = static_cast<int32_t>(step);
    count_flops(op, pass);
    pass.moves.push(std::move(op));
    if (step == 0) {
      sums = mine;
    } else {
      Op add = pass.moves.op(what::kAdd);
      add.inputs = mine.tensors;
      add.outputs = sums.tensors;
      pass.moves.push(std::move(add));
    }
    keys = std::move(coming);
  }
  if (steps > 1) sums = pass.moves.pass_on(part, role, sums, steps, "gradient.kv");
  sums = pass.moves.receive(part, sums, role.shift_from, role.keys, role.shift_to, "gradient.kv");
  pass.moves.return_sums(part, sums, {pass.d_qkv[1], pass.d_qkv[2]});
  if (team || pass.sums != pass.d_qkv[0]) pass.moves.return_sums(part, dq, {pass.d_qkv[0]});
}

void AttentionOps::attend_heads_backward(Pass& pass, const CutPart& part) {
  const CutSequence& cut = *part.cut;
  const Kept& kept = pass.kept;
  const Holding held = pass.moves.heads_of(part, {kept.qkv[0], kept.qkv[1], kept.qkv[2], kept.lse, pass.delta, pass.d_o});
  std::vector<BufferId> gradients;
  for (size_t i = 0; i < 3; ++i) gradients.push_back(pass.moves.like("gradient.heads", held.tensors[i], cut.length));
  Op op = pass.moves.op(what::kAttendBackward);
  op.units = {unit(cut, held, held)};
  op.inputs = held.tensors;
  op.outputs = gradients;
  op.index = part.member;
  op.part = -1;
  op.parts = cut.members();
  count_flops(op, pass);
  pass.moves.push(std::move(op));
  pass.moves.tokens_of_heads(part, {held.members, gradients, 0}, {pass.d_qkv[0], pass.d_qkv[1], pass.d_qkv[2]});
}

// --- units ---------------------------------------------------------------------------------------------------------------------------------

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
  const int64_t window = config.window_of(recipe_.model.segments[static_cast<size_t>(op.segment)].layer);
  double pairs = 0;
  for (const AttendUnit& unit : op.units) pairs += visible_pairs(unit, window);
  op.flops = (pass.moves.backward() ? 8.0 : 4.0) * static_cast<double>(config.query_width() / op.parts) * pairs;
}

}  // namespace ballast
