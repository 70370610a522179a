#include "ballast/graph/build_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "ballast/base/check.h"
#include "ballast/graph/hops.h"
#include "ballast/graph/segment_ops.h"

namespace ballast {

namespace {

// One compute operation before its weights are known, with what must stand around it in program order.
struct Entry {
  Op op;
  std::vector<int64_t> groups;     // groups whose weights it reads
  std::vector<int64_t> gradients;  // trainable groups that it contributes to
};

// A stretch of entries during which a group's full weights are in place.
struct Use {
  int64_t group;
  size_t first;                    // index of the first entry that reads it
  Movement movement;
  bool from_secondary = false;
  bool cuts_secondary = false;     // the first use of a group whose secondary weights serve later ones
};

class Builder {
 public:
  Builder(const Recipe& recipe, int64_t rank, std::span<const MicroBatchLayout> micro_batches, Work work, const StepTokens* tokens)
      : recipe_(recipe), rank_(rank), micro_batches_(micro_batches), work_(work), state_(persistent_state(recipe, rank)) {
    graph_.buffers = state_.buffers;
    graph_.persistent = static_cast<int32_t>(state_.buffers.size());
    graph_.lanes = static_cast<int16_t>(1 + recipe.topology.level_count());
    for (size_t g = 0; g < recipe.model.groups.size(); ++g) places_.push_back(place_group(recipe, g));
    refreshed_.assign(places_.size(), false);
    full_gradient_.assign(places_.size(), kNoBuffer);
    contributions_left_.assign(places_.size(), 0);
    if (tokens != nullptr && work == Work::Train) table_ = split_table(recipe, *tokens);
  }

  StepGraph build() {
    if (work_ == Work::Collect) {
      for (size_t g = 0; g < places_.size(); ++g) collect(static_cast<int64_t>(g));
    } else {
      for (size_t m = 0; m < micro_batches_.size(); ++m) lay_out_micro_batch(m);
      emit_entries();
      if (work_ == Work::Train) emit_updates();
    }
    add_data_dependencies(graph_);
    plan_arena(graph_, recipe_.prefetch > 1);   // as gathers further ahead: memory for less waiting
    check_graph(graph_);
    return std::move(graph_);
  }

 private:
  // --- the compute operations of one micro-batch, in order -------------------------------------------------------------
  void lay_out_micro_batch(size_t index) {
    SegmentOps ops(recipe_, rank_, graph_, micro_batches_[index], static_cast<int32_t>(index));
    const auto& segments = recipe_.model.segments;
    const auto enter = [&](Op op, const Segment& segment, bool gradients) {
      Entry entry;
      entry.groups = op.what == what::kBackward && segment.kind == SegmentKind::Embedding ? std::vector<int64_t>{} : segment.groups;
      if (gradients) {
        for (int64_t g : segment.groups) if (places_[static_cast<size_t>(g)].group->trainable) entry.gradients.push_back(g);
      }
      entry.op = std::move(op);
      graph_.scratch_bytes = std::max(graph_.scratch_bytes, ops.scratch(segment, entry.op));
      entries_.push_back(std::move(entry));
    };
    const auto count = static_cast<int64_t>(segments.size());
    const int64_t lowest = lowest_trained_segment();
    for (int64_t s = 0; s < count; ++s) {
      const Segment& segment = segments[static_cast<size_t>(s)];
      if (segment.kind == SegmentKind::Head) {
        enter(work_ == Work::Train ? ops.head_train(s) : ops.head_loss(s), segment, work_ == Work::Train);
      } else {
        for (Op& op : ops.forward(s)) enter(std::move(op), segment, false);
      }
    }
    if (work_ != Work::Train) return;
    for (int64_t s = count - 2; s >= lowest; --s) {
      const Segment& segment = segments[static_cast<size_t>(s)];
      if (ops.recomputes(segment) && segment.kind != SegmentKind::Attend) enter(ops.recompute(s), segment, false);
      for (Op& op : ops.backward(s)) enter(std::move(op), segment, true);
    }
  }

  int64_t lowest_trained_segment() const {
    for (size_t s = 0; s < recipe_.model.segments.size(); ++s) {
      for (int64_t g : recipe_.model.segments[s].groups) {
        if (places_[static_cast<size_t>(g)].group->trainable) return static_cast<int64_t>(s);
      }
    }
    return static_cast<int64_t>(recipe_.model.segments.size());
  }

  // --- weights: where they are read, and gathers ahead of the reads ---------------------------------------------------
  // Entries of one block in one pass of a micro-batch (or in both passes, where the row keeps the weights) share one gather.
  void find_uses() {
    std::map<std::array<int64_t, 4>, BufferId> gathered;  // group, micro-batch, backward, block
    std::vector<size_t> first_use(places_.size(), SIZE_MAX);
    for (size_t e = 0; e < entries_.size(); ++e) {
      Op& op = entries_[e].op;
      const bool backward = op.what == what::kBackward || op.what == what::kRecompute;
      for (int64_t g : entries_[e].groups) {
        const GroupPlace& place = places_[static_cast<size_t>(g)];
        const auto [found, fresh] = gathered.try_emplace({g, op.micro_batch, backward && !place.row->keep, block_of(op)}, kNoBuffer);
        if (fresh) {
          found->second = place.weights == kSelf ? state_.groups[static_cast<size_t>(g)].weights
                                                 : new_buffer("gathered." + place.group->name, recipe_.compute, {place.padded});
          size_t& first = first_use[static_cast<size_t>(g)];
          Use use{g, e, backward ? Movement::BackwardGather : Movement::ForwardGather};
          if (first == SIZE_MAX) {
            first = uses_.size();
          } else if (work_ == Work::Train && place.secondary && (backward || place.row->secondary_forward)) {
            use.movement = Movement::BackwardGather;
            use.from_secondary = uses_[first].cuts_secondary = true;
          }
          uses_.push_back(use);
          use_buffers_.push_back(found->second);
        }
        op.weights.push_back(found->second);
      }
    }
  }

  // Blocks by index; embedding and head count as blocks of their own.
  int64_t block_of(const Op& op) const {
    const Segment& segment = recipe_.model.segments[static_cast<size_t>(op.segment)];
    return segment.layer >= 0 ? segment.layer : recipe_.model.config.layers + op.segment;
  }

  void emit_entries() {
    find_uses();
    size_t next = 0, due = 0;
    for (size_t e = 0; e < entries_.size(); ++e) {
      // Uses that start by now are due; `prefetch` more may run ahead behind this entry's compute.
      while (due < uses_.size() && uses_[due].first <= e) ++due;
      const size_t ahead = std::min(uses_.size(), due + static_cast<size_t>(recipe_.prefetch));
      for (; next < ahead; ++next) bring_weights(uses_[next], use_buffers_[next]);
      if (is_head(entries_[e].op)) refresh_rest();   // of an untied table, behind all that the forward waits for
      emit_entry(entries_[e], e);
    }
  }

  void bring_weights(const Use& use, BufferId buffer) {
    const auto g = static_cast<size_t>(use.group);
    const GroupPlace& place = places_[g];
    if (table_.group == g && refreshed_[g]) refresh_rest();
    refresh(g);
    if (place.weights == kSelf) return;
    HopWriter hops(recipe_, rank_, graph_, use.group, use.movement);
    const Image full{buffer, recipe_.native(), 0};
    const auto secondary = [&] { return Image{state_.groups[g].secondary, place.secondary_codec, shard(place, *place.secondary).begin}; };
    if (use.from_secondary) {
      hops.gather(secondary(), *place.secondary, full, gather_hops(recipe_, place, use.movement));
    } else {
      hops.gather(weights_of(g), place.weights, full, hops_of(place, use.movement, kSelf, place.weights));
    }
    if (use.cuts_secondary) hops.cut(full, secondary(), *place.secondary);
  }

  // Rule 1: new weights from optimizer shard to weight shard, before the group's first use. Of a split table its first use, the embedding, waits
  // for the rows that it reads; the rest follows before the next.
  void refresh(size_t g) {
    const GroupPlace& place = places_[g];
    if (refreshed_[g] || !place.group->trainable) return;
    refreshed_[g] = true;
    const bool split = table_.group == g && table_.refresh;
    refresh_part(g, split ? table_.refresh->hot : nullptr);
    if (split) rest_ = table_.refresh->cold;
  }

  void refresh_rest() {
    if (rest_ != nullptr) refresh_part(*table_.group, std::exchange(rest_, nullptr));
  }

  void refresh_part(size_t g, std::shared_ptr<const Subset> part) {
    const GroupPlace& place = places_[g];
    const Image weights = weights_of(g);
    const Image source = refresh_is_lossy(recipe_, place) ? master_of(g) : weights;
    HopWriter hops(recipe_, rank_, graph_, static_cast<int64_t>(g), Movement::Refresh, std::move(part));
    hops.gather(source, place.optimizer, weights, hops_of(place, Movement::Refresh, place.weights, place.optimizer));
  }

  // Training moves weights as the row says; an evaluation is of the very weights.
  std::vector<HopSpec> hops_of(const GroupPlace& place, Movement movement, int inner, int outer) const {
    return work_ == Work::Train ? gather_hops(recipe_, place, movement) : plain_hops(inner, outer, recipe_.topology, recipe_.native());
  }

  Range shard(const GroupPlace& place, int level) const { return place.shard(recipe_.topology, rank_, level); }
  Image weights_of(size_t g) const { return {state_.groups[g].weights, recipe_.native(), shard(places_[g], places_[g].weights).begin}; }
  Image master_of(size_t g) const { return {state_.groups[g].master, CodecSpec{}, shard(places_[g], places_[g].optimizer).begin}; }

  // --- an entry with the gradient work around it ----------------------------------------------------------------------
  void emit_entry(Entry& entry, size_t index) {
    const auto m = entry.op.micro_batch;
    for (int64_t g : entry.gradients) {
      const auto at = static_cast<size_t>(g);
      if (contributions_left_[at] == 0) {  // the first contribution of this micro-batch
        contributions_left_[at] = count_contributions(g, m, index);
        prepare_gradient(at);
      }
    }
    // Nothing is zeroed: in the first micro-batch that a buffer serves, contributions overwrite. Each tensor has one, but for the table of a tied
    // head, to which the embedding's is added.
    const Segment& segment = recipe_.model.segments[static_cast<size_t>(entry.op.segment)];
    const std::vector<int64_t>& head = recipe_.model.segments.back().groups;
    for (size_t i = 0; i < entry.gradients.size(); ++i) {
      const auto at = static_cast<size_t>(entry.gradients[i]);
      entry.op.gradients.push_back(full_gradient_[at]);
      const bool second = segment.kind == SegmentKind::Embedding && std::ranges::find(head, entry.gradients[i]) != head.end();
      if (!second && (places_[at].gradients != kSelf || m == 0)) entry.op.fresh |= 1u << i;
    }
    graph_.ops.push_back(entry.op);
    // Small groups first: behind a large one's exchange they would wait for memory and for the link at the very end of a step.
    std::vector<size_t> complete;
    for (int64_t g : entry.gradients) {
      if (--contributions_left_[static_cast<size_t>(g)] == 0) complete.push_back(static_cast<size_t>(g));
    }
    std::ranges::stable_sort(complete, {}, [&](size_t g) { return places_[g].padded; });
    for (size_t g : complete) reduce(g, m, split_sums(g, m) ? table_.sums->hot : nullptr);
    if (is_head(entry.op) && table_.group && split_sums(*table_.group, m)) reduce(*table_.group, m, table_.sums->cold);
  }

  bool is_head(const Op& op) const { return recipe_.model.segments[static_cast<size_t>(op.segment)].kind == SegmentKind::Head; }

  // In the last micro-batch rows that the embedding does not touch are complete after the head.
  bool split_sums(size_t g, int32_t micro_batch) const {
    return table_.group == g && table_.sums && micro_batch + 1 == static_cast<int32_t>(micro_batches_.size());
  }

  int64_t count_contributions(int64_t g, int32_t micro_batch, size_t from) const {
    int64_t count = 0;
    for (size_t e = from; e < entries_.size() && entries_[e].op.micro_batch == micro_batch; ++e) {
      count += std::count(entries_[e].gradients.begin(), entries_[e].gradients.end(), g);
    }
    return count;
  }

  // The full fp32 gradient that kernels write: the persistent one where a rank keeps it whole, else a step buffer.
  void prepare_gradient(size_t g) {
    const GroupPlace& place = places_[g];
    const bool whole = place.gradients == kSelf;
    full_gradient_[g] = whole ? state_.groups[g].gradients : new_buffer("gradient." + place.group->name, DType::Float32, {place.padded});
  }

  // Rules 4 and 5: to the gradient shard after each micro-batch; after the last one on to the optimizer shard and over the replicas.
  void reduce(size_t g, int32_t micro_batch, const std::shared_ptr<const Subset>& part) {
    const GroupPlace& place = places_[g];
    const GroupState& state = state_.groups[g];
    const std::vector<HopSpec> inner = reduce_hops(recipe_, place), outer = reduce_on_hops(recipe_, place);
    const std::span<const BufferId> feedback(state.feedback);
    if (place.gradients != kSelf) {
      HopWriter hops(recipe_, rank_, graph_, static_cast<int64_t>(g), Movement::Reduce, part);
      hops.reduce({full_gradient_[g], CodecSpec{}, 0}, inner, feedback.first(inner.size()), state.gradients, micro_batch > 0, micro_batch);
    }
    if (micro_batch + 1 != static_cast<int32_t>(micro_batches_.size())) return;
    const Image sums{state.gradients, CodecSpec{}, shard(place, place.gradients).begin};
    const int top = recipe_.topology.outermost();
    HopWriter hops(recipe_, rank_, graph_, static_cast<int64_t>(g), Movement::ReduceOn, part);
    hops.reduce(sums, outer, feedback.subspan(inner.size()), kNoBuffer, false, micro_batch);
    const CodecSpec native = recipe_.native();
    hops.gather(sums, top, sums, place.row->hops(Movement::ReduceOn, place.optimizer, top, recipe_.topology, native, native));
  }

  // Rule 6.
  void emit_updates() {
    Op norm;
    norm.kind = OpKind::Host;
    norm.what = what::kNorm;
    for (const GroupState& group : state_.groups) if (group.gradients != kNoBuffer) norm.inputs.push_back(group.gradients);
    graph_.ops.push_back(norm);
    refresh_rest();
    for (size_t g = 0; g < places_.size(); ++g) {
      const GroupState& group = state_.groups[g];
      if (group.gradients == kNoBuffer) continue;
      refresh(g);  // of a group that no segment read
      const Range optimizer = places_[g].shard(recipe_.topology, rank_, places_[g].optimizer);
      Op update;
      update.kind = OpKind::Update;
      update.what = what::kUpdate;
      update.group = static_cast<int32_t>(g);
      update.begin = optimizer.begin - places_[g].shard(recipe_.topology, rank_, places_[g].gradients).begin;
      update.part = optimizer.count;
      update.inputs = {group.gradients};
      update.outputs = {group.master, group.weights};
      update.outputs.insert(update.outputs.end(), group.optimizer.begin(), group.optimizer.end());
      graph_.ops.push_back(std::move(update));
    }
  }

  void collect(int64_t g) {
    const GroupPlace& place = places_[static_cast<size_t>(g)];
    const GroupState& group = state_.groups[static_cast<size_t>(g)];
    const bool master = group.master != kNoBuffer;
    const int level = master ? place.optimizer : place.weights;
    const DType dtype = master ? DType::Float32 : recipe_.compute;
    const Image source = master ? master_of(static_cast<size_t>(g)) : weights_of(static_cast<size_t>(g));
    BufferId full = source.buffer;
    if (level != kSelf) {
      full = new_buffer("collected." + place.group->name, dtype, {place.padded});
      // Between steps both arenas are empty. That of gathered weights and full gradients is large where weights are sharded.
      if (place.weights == kSelf) graph_.buffers.back().state = StateKind::Activations;
      HopWriter(recipe_, rank_, graph_, g, Movement::Count).gather(source, level, {full, source.codec, 0}, plain_hops(kSelf, level, recipe_.topology, source.codec));
    }
    Op sink;
    sink.kind = OpKind::Host;
    sink.what = what::kSink;
    sink.group = static_cast<int32_t>(g);
    sink.inputs = {full};
    graph_.ops.push_back(std::move(sink));
  }

  BufferId new_buffer(std::string name, DType dtype, std::vector<int64_t> shape) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.dtype = dtype;
    buffer.shape = std::move(shape);
    graph_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(graph_.buffers.size() - 1);
  }

  const Recipe& recipe_;
  int64_t rank_;
  std::span<const MicroBatchLayout> micro_batches_;
  Work work_;
  PersistentState state_;
  StepGraph graph_;
  std::vector<GroupPlace> places_;
  std::vector<Entry> entries_;
  std::vector<Use> uses_;
  std::vector<BufferId> use_buffers_;
  std::vector<bool> refreshed_;
  std::vector<BufferId> full_gradient_;
  std::vector<int64_t> contributions_left_;
  TableSplit table_;
  std::shared_ptr<const Subset> rest_;   // of the token table, to be refreshed yet
};

}  // namespace

StepGraph build_step(const Recipe& recipe, int64_t rank, std::span<const MicroBatchLayout> micro_batches, Work work, const StepTokens* tokens) {
  return Builder(recipe, rank, micro_batches, work, tokens).build();
}

}  // namespace ballast
