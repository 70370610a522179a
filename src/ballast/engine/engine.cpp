#include "ballast/engine/engine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/comm/collectives.h"
#include "ballast/engine/nonfinite.h"
#include "ballast/engine/run.h"
#include "ballast/optim/sum_of_squares.h"

namespace ballast {

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The parts of a group's tensors that lie in `shard`, with their decay flags, relative to the shard's start.
std::vector<UpdateRange> ranges_in(const ParameterGroup& group, const Range& shard) {
  std::vector<UpdateRange> ranges;
  for (const ParameterTensor& tensor : group.tensors) {
    const int64_t begin = std::max(tensor.offset, shard.begin);
    const int64_t end = std::min(tensor.offset + tensor.numel(), shard.begin + shard.count);
    if (begin < end) ranges.push_back({begin - shard.begin, end - shard.begin, tensor.decay});
  }
  return ranges;
}

}  // namespace

Engine::Engine(Recipe recipe, Communicator& communicator, EngineOptions options)
    : recipe_(std::move(recipe)), communicator_(communicator), options_(std::move(options)), memory_(recipe_, communicator.rank()) {
  BALLAST_CHECK(recipe_.topology.ranks() == communicator.size(), "topology of {} ranks, communicator of {}", recipe_.topology.ranks(), communicator.size());
  for (size_t g = 0; g < recipe_.model.groups.size(); ++g) {
    places_.push_back(place_group(recipe_, g));
    update_ranges_.push_back(ranges_in(*places_[g].group, places_[g].shard(recipe_.topology, rank(), places_[g].optimizer)));
  }
  const auto rank_of_lanes = static_cast<int>(rank());
  lanes_ = std::make_unique<Lanes>(1 + recipe_.topology.level_count(), [rank_of_lanes](Lane) {
    set_thread_rank(rank_of_lanes);
    at::set_num_threads(1);
  });
}

void Engine::set_weights(const Fill& fill) {
  const c10::InferenceMode inference;
  std::vector<float> chunk;
  for (size_t g = 0; g < places_.size(); ++g) {
    const GroupState& state = memory_.state().groups[g];
    const GroupPlace& place = places_[g];
    constexpr int64_t kChunk = int64_t{1} << 20;
    const auto fill_range = [&](BufferId id, const Range& range) {
      const at::Tensor& target = memory_.tensor(id);
      for (int64_t done = 0; done < range.count; done += kChunk) {
        const int64_t count = std::min(kChunk, range.count - done);
        chunk.assign(static_cast<size_t>(count), 0.0f);
        fill(*place.group, range.begin + done, chunk);
        target.narrow(0, done, count).copy_(at::from_blob(chunk.data(), {count}, at::kFloat));
      }
    };
    fill_range(state.weights, place.shard(recipe_.topology, rank(), place.weights));
    if (state.master != kNoBuffer && memory_.state().buffers[static_cast<size_t>(state.master)].alias_of == kNoBuffer) {
      fill_range(state.master, place.shard(recipe_.topology, rank(), place.optimizer));
    }
  }
}

void Engine::weights_from_master() {
  const c10::InferenceMode inference;
  for (size_t g = 0; g < places_.size(); ++g) {
    const GroupState& state = memory_.state().groups[g];
    if (state.master == kNoBuffer || memory_.state().buffers[static_cast<size_t>(state.master)].alias_of != kNoBuffer) continue;
    const Range weights = places_[g].shard(recipe_.topology, rank(), places_[g].weights);
    const Range optimizer = places_[g].shard(recipe_.topology, rank(), places_[g].optimizer);
    memory_.tensor(state.weights).narrow(0, optimizer.begin - weights.begin, optimizer.count).copy_(memory_.tensor(state.master));
  }
}

void Engine::forget_feedback() {
  for (const GroupState& group : memory_.state().groups) {
    for (BufferId id : group.feedback) {
      if (id != kNoBuffer) std::memset(memory_.tensor(id).data_ptr(), 0, memory_.tensor(id).nbytes());  // scale 0: every element is 0
    }
  }
}

StepResult Engine::train(const StepGraph& graph, std::span<const MicroBatch> batches, const StepSettings& settings) {
  if (!reserved_) {   // what is trained is also saved: a checkpoint must not be what runs out of memory
    memory_.reserve(build_step(recipe_, rank(), {}, Work::Collect));
    reserved_ = true;
  }
  GraphRun run;
  run.batches = batches;
  run.settings = settings;
  run.train = true;
  run.scale = settings.trained_targets > 0 ? 1.0 / static_cast<double>(settings.trained_targets) : 0.0;
  this->run(graph, run);
  return run.result;
}

Engine::Evaluation Engine::evaluate(const StepGraph& graph, std::span<const MicroBatch> batches) {
  GraphRun run;
  run.batches = batches;
  this->run(graph, run);
  // One agreement: the words of the exact sum and the count.
  std::vector<int64_t> words(ExactSum::kWords + 1);
  const ExactSum::Words mine = run.loss.words();
  std::copy(mine.begin(), mine.end(), words.begin());
  words.back() = run.targets;
  words = all_sum(communicator_, words, "sum of losses");
  return {ExactSum::from_words(std::span<const int64_t, ExactSum::kWords>(words.data(), ExactSum::kWords)), words.back()};
}

void Engine::collect(const StepGraph& graph, const Sink& sink) {
  GraphRun run;
  run.sink = &sink;
  this->run(graph, run);
}

void Engine::run(const StepGraph& graph, GraphRun& run) {
  const c10::InferenceMode inference;
  memory_.bind(graph);
  run.graph = &graph;
  at::set_num_threads(options_.threads);
  run.record = timeline_ != nullptr;
  run.times.assign(graph.ops.size(), {});
  if (options_.poison) {
    run.touched.assign(graph.buffers.size(), false);
    for (BufferId id = 0; id < graph.persistent; ++id) {  // secondary weights of an earlier step must not be read
      if (graph.buffers[static_cast<size_t>(id)].state == StateKind::Secondary) memory_.poison(id);
    }
    poison_refreshed(graph);
  }
  const double start = now_s();
  lanes_->run(
      graph,
      [&](const Op& op, size_t index) {
        const c10::InferenceMode lane_inference;
        run.times[index].first = now_s();
        execute(op, run);
        run.times[index].second = now_s();
      },
      [&](const std::exception_ptr& failure) {
        std::string reason = "unknown failure";
        try {
          std::rethrow_exception(failure);
        } catch (const std::exception& error) {
          reason = error.what();
        } catch (...) {
        }
        communicator_.abort(fmt::format("rank {} failed: {}", rank(), reason));
      });
  summarize_times(run, start, now_s());
  occupancy_ = run.occupancy;
  if (timeline_ != nullptr) append_records(run, recipe_, rank(), [this](const Op& op) { return describe(op); }, *timeline_);
}

std::string Engine::describe(const Op& op) const {
  std::string text(op.what);
  if (op.segment >= 0) text += " " + recipe_.model.segments[static_cast<size_t>(op.segment)].name();
  if (op.cut >= 0) text += fmt::format(" sequence {}", op.cut);
  if (op.cut >= 0 && op.slice >= 0) text += fmt::format(" step {}", op.slice);
  if (op.group >= 0) text += " " + recipe_.model.groups[static_cast<size_t>(op.group)].name;
  if (op.subset != nullptr) text += " (part)";
  return text;
}

void Engine::execute(const Op& op, GraphRun& run) {
  if (options_.poison) poison_fresh(op, run);
  if (options_.before_op) options_.before_op(*run.graph, op);
  switch (op.kind) {
    case OpKind::Compute:
      execute_segment(op, run);
      return;
    case OpKind::Copy:
    case OpKind::Codec: execute_codec(op, run); return;
    case OpKind::Collective: execute_hop(op); return;
    case OpKind::Update: update(op, run); return;
    case OpKind::Host:
      if (op.what == what::kNorm) {
        agree_on_norm(run);
      } else if (op.what == what::kSink) {
        (*run.sink)(*places_[static_cast<size_t>(op.group)].group, memory_.tensor(op.inputs[0]));
      }
      return;
    case OpKind::Exchange: execute_exchange(op); return;
  }
  BALLAST_CHECK(false, "no runner for {} {}", name_of(op.kind), op.what);
}

void Engine::agree_on_norm(GraphRun& run) {
  // Each element of the model counts once: replicas of an optimizer shard outside its level leave it to the first of them.
  ExactSum squares;
  for (size_t g = 0; g < places_.size(); ++g) {
    const GroupState& state = memory_.state().groups[g];
    if (state.gradients == kNoBuffer) continue;
    if (rank() >= recipe_.topology.group_size(places_[g].optimizer)) continue;
    const Range gradients = places_[g].shard(recipe_.topology, rank(), places_[g].gradients);
    const Range optimizer = places_[g].shard(recipe_.topology, rank(), places_[g].optimizer);
    add_squares(squares, memory_.tensor(state.gradients).const_data_ptr<float>() + (optimizer.begin - gradients.begin), optimizer.count);
  }
  std::vector<int64_t> words(2 * ExactSum::kWords + 1);
  const ExactSum::Words squares_words = squares.words(), loss_words = run.loss.words();
  std::copy(squares_words.begin(), squares_words.end(), words.begin());
  std::copy(loss_words.begin(), loss_words.end(), words.begin() + ExactSum::kWords);
  words.back() = run.targets;
  words = all_sum(communicator_, words, "gradient norm and loss");
  const double sum_of_squares = ExactSum::from_words(std::span<const int64_t, ExactSum::kWords>(words.data(), ExactSum::kWords)).value();
  const double loss = ExactSum::from_words(std::span<const int64_t, ExactSum::kWords>(words.data() + ExactSum::kWords, ExactSum::kWords)).value();
  BALLAST_CHECK(words.back() == run.settings.trained_targets, "ranks trained {} targets, the selection has {}", words.back(), run.settings.trained_targets);
  run.result.grad_norm = std::sqrt(sum_of_squares);
  run.result.loss = loss * run.scale;
  if (std::isfinite(run.result.grad_norm) && std::isfinite(run.result.loss)) return;
  const std::string where = blame_nonfinite(run);
  if (!run.settings.skip_nonfinite) {
    throw Error(ErrorKind::Numerical, fmt::format("step {}: {} is not finite", run.settings.step, std::isfinite(run.result.loss) ? "the gradient norm" : "the loss"))
        .found(fmt::format("loss {}, gradient norm {}{}", run.result.loss, run.result.grad_norm, where))
        .expected("finite values; nothing was updated")
        .cure("lower optimizer.lr, set optimizer.clip, or train.on_nonfinite: skip to leave such steps out");
  }
  run.result.updated = false;
  run.result.nonfinite = where;
}

// Where the numbers went wrong, as far as all ranks together can tell: weights are the cause of all else, a loss of gradients, a message of what was
// summed from it. Every rank calls it, as all agree that the norm or the loss is not finite.
std::string Engine::blame_nonfinite(GraphRun& run) {
  std::string mine;
  const auto look = [&](Blame blame, const char* what, size_t g, BufferId id, int level) {
    if (!mine.empty() || id == kNoBuffer) return;
    const at::Tensor& values = memory_.tensor(id);
    const CodecSpec codec = values.scalar_type() == at::kFloat ? CodecSpec{} : recipe_.native();
    Range bad = last_nonfinite(codec, values.const_data_ptr(), values.numel());
    if (bad.count == 0) return;
    bad.begin += places_[g].shard(recipe_.topology, rank(), level).begin;
    mine = static_cast<char>(blame) + fmt::format("the {} {}", what, tensors_of(*places_[g].group, bad));
  };
  for (size_t g = 0; g < places_.size(); ++g) {
    look(Blame::Weights, "weights", g, memory_.state().groups[g].weights, places_[g].weights);
    look(Blame::Weights, "weights", g, memory_.state().groups[g].master, places_[g].optimizer);
  }
  if (mine.empty() && !std::isfinite(run.loss.value())) mine = static_cast<char>(Blame::Loss) + std::string("the loss, all weights being finite,");
  {
    const std::lock_guard lock(run.nonfinite_mutex);
    if (mine.empty() && run.nonfinite_group >= 0) {
      mine = static_cast<char>(Blame::Message) + fmt::format("a message with {}", tensors_of(recipe_.model.groups[static_cast<size_t>(run.nonfinite_group)], run.nonfinite));
    }
  }
  // The backward goes from the last group to the first: what it met first.
  for (size_t g = places_.size(); g-- > 0;) look(Blame::Gradient, "gradient of", g, memory_.state().groups[g].gradients, places_[g].gradients);
  return blame_text(communicator_.all_gather_text(mine, "where a value is not finite"));
}

void Engine::update(const Op& op, GraphRun& run) {
  if (!run.result.updated) return;
  const auto g = static_cast<size_t>(op.group);
  const GroupState& state = memory_.state().groups[g];
  UpdateBuffers buffers;
  buffers.weights = memory_.tensor(state.master);
  buffers.gradient = memory_.tensor(state.gradients).narrow(0, op.begin, op.part);
  for (BufferId id : state.optimizer) buffers.states.push_back(memory_.tensor(id));
  // A lossy refresh takes the weights from the master in the next graph.
  if (memory_.state().buffers[static_cast<size_t>(state.master)].alias_of == kNoBuffer && !refresh_is_lossy(recipe_, places_[g])) {
    const int64_t first = places_[g].shard(recipe_.topology, rank(), places_[g].optimizer).begin - places_[g].shard(recipe_.topology, rank(), places_[g].weights).begin;
    buffers.copy = memory_.tensor(state.weights).narrow(0, first, op.part);
  }
  UpdateStep step;
  step.step = run.settings.step;
  step.lr = run.settings.lr;
  step.scale = clip_factor(run.result.grad_norm, run.settings.clip);
  apply_update(options_.optimizer, step, update_ranges_[g], buffers);
}

}  // namespace ballast
