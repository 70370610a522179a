// The runners of compute operations (segments) and of hops.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>

#include "ballast/base/check.h"
#include "ballast/codec/transcode.h"
#include "ballast/comm/collectives.h"
#include "ballast/engine/engine.h"
#include "ballast/engine/nonfinite.h"
#include "ballast/engine/run.h"

namespace ballast {

void Engine::execute_segment(const Op& op, GraphRun& run) {
  if (op.segment >= 0 && recipe_.model.segments[static_cast<size_t>(op.segment)].kind == SegmentKind::Attend) return execute_attention(op, run);
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(op.segment)];
  RoleTensors weights, gradients;
  RoleFlags fresh{};
  for (size_t i = 0; i < op.weights.size(); ++i) {
    add_role_views(recipe_.model.groups[static_cast<size_t>(segment.groups[i])], memory_.tensor(op.weights[i]), weights);
  }
  size_t trainable = 0;
  for (int64_t g : segment.groups) {
    const ParameterGroup& group = recipe_.model.groups[static_cast<size_t>(g)];
    if (op.gradients.empty() || !group.trainable) continue;
    const at::Tensor& flat = memory_.tensor(op.gradients[trainable]);
    add_role_views(group, flat, gradients);
    if ((op.fresh >> trainable & 1u) != 0) {
      zero_gaps(group, flat);
      for (const ParameterTensor& tensor : group.tensors) fresh[static_cast<size_t>(tensor.role)] = true;
    }
    ++trainable;
  }
  BALLAST_CHECK(trainable == op.gradients.size(), "{} gradient buffers, {} trainable groups", op.gradients.size(), trainable);
  BALLAST_CHECK(op.micro_batch >= 0 && op.micro_batch < static_cast<int32_t>(run.batches.size()), "micro-batch {} of {}", op.micro_batch, run.batches.size());
  const MicroBatch& batch = run.batches[static_cast<size_t>(op.micro_batch)];
  SegmentCall call{recipe_.model.config, segment.layer, batch, weights, gradients};
  call.fresh = fresh;
  call.train = run.train;
  call.seed = options_.seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(run.settings.step);
  const auto in = [&](size_t i) -> const at::Tensor& { return memory_.tensor(op.inputs[i]); };
  at::Tensor out[4];
  for (size_t i = 0; i < op.outputs.size(); ++i) out[i] = memory_.tensor(op.outputs[i]);
  Saved saved;
  for (BufferId id : op.saved) saved.push_back(memory_.tensor(id));

  if (op.what == what::kForward) {
    switch (segment.kind) {
      case SegmentKind::Embedding: return embedding_forward(call, out[0]);
      case SegmentKind::Project: return project_forward(call, in(0), out[0], out[1], out[2], saved);
      case SegmentKind::Attend:
      case SegmentKind::Finish: return finish_forward(call, in(0), in(1), out[0], saved);
      case SegmentKind::Head: break;
    }
  } else if (op.what == what::kRecompute) {
    if (segment.kind == SegmentKind::Project) return project_recompute(call, in(0), saved);
    if (segment.kind == SegmentKind::Finish) return finish_recompute(call, in(0), in(1), saved);
  } else if (op.what == what::kBackward) {
    switch (segment.kind) {
      case SegmentKind::Embedding: return embedding_backward(call, in(0));
      case SegmentKind::Project: return project_backward(call, in(0), saved, out[0], out[1], out[2], out[3]);
      case SegmentKind::Attend:
      case SegmentKind::Finish: return finish_backward(call, in(0), in(1), saved, out[0], out[1]);
      case SegmentKind::Head: break;
    }
  } else if (op.what == what::kHeadTrain || op.what == what::kHeadLoss) {
    at::Tensor losses = out[op.outputs.size() - 1];
    if (op.what == what::kHeadTrain) {
      head_train(call, in(0), run.scale, out[0], losses);
    } else {
      head_loss(call, in(0), losses);
    }
    const float* values = losses.const_data_ptr<float>();
    const int64_t* targets = batch.targets.const_data_ptr<int64_t>();
    for (int64_t t = 0; t < losses.numel(); ++t) {
      if (targets[t] < 0) continue;
      run.loss.add(static_cast<double>(values[t]));
      ++run.targets;
    }
    return;
  }
  BALLAST_CHECK(false, "no runner for {} {}", op.what, name_of(segment.kind));
}

namespace {

char* at_element(const at::Tensor& buffer, const CodecSpec& codec, int64_t begin, int64_t count) {
  const int64_t offset = codec.encoded_bytes(begin);
  BALLAST_CHECK(begin >= 0 && offset + codec.encoded_bytes(count) <= static_cast<int64_t>(buffer.nbytes()), "elements {} + {} as {} of {} bytes", begin, count,
                codec.text(), buffer.nbytes());
  return static_cast<char*>(buffer.data_ptr()) + offset;
}

// Elements in the parts before part j of a hop's range.
int64_t elements_before(const Op& op, int64_t j) { return op.subset == nullptr ? j * op.part : op.subset->count(op.element, op.element + j * op.part); }

// Elements that stand in one piece on both sides of a copy or codec: from `in` and `out` on, beside Op::begin and Op::into_begin.
struct Stretch {
  int64_t in = 0, out = 0, count = 0;
};

template <class Each>
void for_stretches_of(const Op& op, Each&& each) {
  if (op.subset == nullptr) return each(Stretch{0, 0, op.part});
  if (!op.spread_in && !op.spread_out) return each(Stretch{0, 0, op.subset->count(op.element, op.element + op.part)});
  int64_t packed = 0;
  op.subset->visit(op.element, op.element + op.part, [&](int64_t first, int64_t count) {
    each(Stretch{op.spread_in ? first - op.element : packed, op.spread_out ? first - op.element : packed, count});
    packed += count;
  });
}

// Of the group: where the element number `at` of a stretch comes from.
int64_t element_of(const Op& op, const Stretch& stretch, int64_t at) {
  if (op.subset == nullptr) return op.element + at;
  if (op.spread_in) return op.element + stretch.in + at;
  if (op.spread_out) return op.element + stretch.out + at;
  return op.subset->element_at(op.subset->below(op.element) + at);
}

}  // namespace

void Engine::execute_hop(const Op& op) {
  const std::vector<int64_t> members = recipe_.topology.hop_members(rank(), op.below, op.level);
  const auto count = static_cast<int64_t>(members.size());
  const Hop hop{members, recipe_.topology.hop_index(rank(), op.below, op.level), op.tag, Purpose{describe(op), op.tag}};
  std::vector<int64_t> bounds;   // of the parts, bytes
  for (int64_t j = 0; j <= count; ++j) bounds.push_back(op.codec.encoded_bytes(elements_before(op, j)));
  const int64_t all = elements_before(op, count);
  if (op.what == what::kGather) {
    gather(communicator_, hop, at_element(memory_.tensor(op.outputs[0]), op.codec, op.begin, all), bounds);
    return;
  }
  BALLAST_CHECK(op.what == what::kSwap, "no runner for {}", op.what);
  const int64_t own = elements_before(op, hop.index + 1) - elements_before(op, hop.index);
  swap(communicator_, hop, at_element(memory_.tensor(op.inputs[0]), op.codec, op.begin, all), bounds,
       at_element(memory_.tensor(op.outputs[0]), op.codec, 0, (count - 1) * own));
}

// Stochastic rounding draws by seed, step, operation and rank: members of a sum round independently.
Draw Engine::draw_of(const Op& op, const GraphRun& run) const {
  uint64_t key = options_.seed;
  for (const uint64_t part : {static_cast<uint64_t>(run.settings.step), op.tag, static_cast<uint64_t>(rank())}) key = (key ^ part) * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull;
  return {key, 0};
}

Feedback Engine::feedback_of(const Op& op, const GraphRun& run) const {
  if (op.saved.empty()) return {};
  const bool reset = op.first_feedback && (run.settings.step - 1) % op.feedback.reset == 0;
  return {memory_.tensor(op.saved[0]).data_ptr(), static_cast<float>(op.feedback.beta), reset};
}

void Engine::execute_codec(const Op& op, GraphRun& run) {
  BALLAST_CHECK(op.subset == nullptr || op.saved.empty(), "error feedback of a part of group {}", op.group);
  const at::Tensor& from = memory_.tensor(op.inputs[0]);
  const at::Tensor& to = memory_.tensor(op.outputs[0]);
  std::vector<int64_t> members;
  int64_t mine = 0, own = 0;   // this rank's place among the members of a sum, and where its part begins
  if (op.what == what::kSum) {
    members = recipe_.topology.hop_members(rank(), op.below, op.level);
    mine = recipe_.topology.hop_index(rank(), op.below, op.level);
    own = op.subset == nullptr ? mine * op.part : op.subset->count(op.element - mine * op.part, op.element);
  }
  const auto source_of = [&](const Stretch& s) { return at_element(from, op.codec, op.begin + own + s.in, s.count); };
  Range bad;
  for_stretches_of(op, [&](const Stretch& s) {
    char* const target = at_element(to, op.into, op.into_begin + s.out, s.count);
    bool finite = true;
    if (op.what == what::kSum) {
      const auto count = static_cast<int64_t>(members.size());
      const int64_t part = op.subset == nullptr ? op.part : op.subset->count(op.element, op.element + op.part);
      const at::Tensor& arrived = memory_.tensor(op.inputs[1]);
      std::vector<const void*> parts;
      for (int64_t j = 0; j < count; ++j) parts.push_back(j == mine ? source_of(s) : at_element(arrived, op.codec, swap_slot(j, mine, count) * part + s.in, s.count));
      SumTarget sum;
      if (op.into.lossless()) {
        sum.values = reinterpret_cast<float*>(target);
        sum.accumulate = op.accumulate;
      } else {
        sum.codec = &codec_for(op.into);
        sum.encoded = target;
        sum.feedback = feedback_of(op, run);
        sum.draw = draw_of(op, run);
      }
      finite = sum_parts(codec_for(op.codec), parts, s.count, sum);
    } else {
      BALLAST_CHECK(op.what == what::kTranscode || op.what == what::kCopy, "no runner for {}", op.what);
      if (op.saved.empty()) {
        finite = transcode(op.codec, source_of(s), op.into, target, s.count, draw_of(op, run));
      } else {
        BALLAST_CHECK(op.codec.lossless(), "error feedback from {}", op.codec.text());
        finite = encode_with_feedback(codec_for(op.into), reinterpret_cast<const float*>(source_of(s)), s.count, target, feedback_of(op, run), draw_of(op, run));
      }
    }
    if (finite) return;
    // The exact element where the numbers are at hand, else the block that came out.
    const bool exact = op.what != what::kSum && !op.codec.blocked();
    const Range found = exact ? last_nonfinite(op.codec, source_of(s), s.count) : last_nonfinite(op.into, target, s.count);
    bad = {element_of(op, s, found.begin), found.count};
  });
  if (bad.count > 0) run.note_nonfinite(op.group, bad);
}

// What a refresh brings in parts must not be read before: all that this rank does not hold itself.
void Engine::poison_refreshed(const StepGraph& graph) {
  for (const Op& op : graph.ops) {
    if (op.subset == nullptr || op.outputs.empty() || graph.buffers[static_cast<size_t>(op.outputs[0])].state != StateKind::Weights) continue;
    const GroupPlace& place = places_[static_cast<size_t>(op.group)];
    const Range own = place.shard(recipe_.topology, rank(), place.optimizer);
    const at::Tensor& weights = memory_.tensor(op.outputs[0]);
    const auto poison = [&](int64_t begin, int64_t end) {
      op.subset->visit(begin, end, [&](int64_t first, int64_t count) {
        weights.narrow(0, op.into_begin + first - op.element, count).fill_(std::numeric_limits<double>::quiet_NaN());
      });
    };
    poison(op.element, own.begin);
    poison(own.begin + own.count, op.element + op.part);
  }
}

void Engine::poison_fresh(const Op& op, GraphRun& run) {
  const auto fresh = [&](BufferId id) {
    const auto b = static_cast<size_t>(id);
    if (run.graph->buffers[b].persistent || run.touched[b]) return;
    run.touched[b] = 1;
    memory_.poison(id);
  };
  for (BufferId id : op.outputs) fresh(id);
  for (BufferId id : op.saved) fresh(id);
  for (size_t i = 0; i < op.gradients.size(); ++i) if ((op.fresh >> i & 1u) != 0) fresh(op.gradients[i]);
}

}  // namespace ballast
