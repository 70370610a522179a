#include "tests/engine/thread_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "ballast/base/check.h"
#include "ballast/layout/route.h"
#include "tests/layout/random_layout.h"

namespace ballast::testing {

namespace {

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::vector<SampleRef> selection_of(const Case& c, int64_t step) {
  std::vector<SampleRef> samples;
  for (int64_t i = 0; i < c.samples_per_step; ++i) {
    const auto id = static_cast<uint64_t>(step * 1000 + i);
    samples.push_back({id, 1 + static_cast<int64_t>(mix(id) % static_cast<uint64_t>(c.longest))});
  }
  if (c.giant > 0) samples.front().length = c.giant;
  return samples;
}

int64_t token_of(uint64_t sample, int64_t position, int64_t vocab) {
  return static_cast<int64_t>(mix(sample * 131 + static_cast<uint64_t>(position)) % static_cast<uint64_t>(vocab));
}

// Every fifth target of a sample is not trained, like a prompt; never all of them.
bool trained(uint64_t sample, int64_t position) { return (sample + static_cast<uint64_t>(position)) % 5 != 0; }

int64_t trained_targets(const std::vector<SampleRef>& samples) {
  int64_t count = 0;
  for (const SampleRef& s : samples) for (int64_t t = 0; t < s.length; ++t) count += trained(s.sample, t);
  return count;
}

std::vector<int64_t> ids_of(const MicroBatchLayout& layout, int64_t vocab) {
  std::vector<int64_t> ids;
  for (const Piece& piece : layout.pieces) {
    for (int64_t t = 0; t < piece.length + piece.padding; ++t) ids.push_back(t < piece.length ? token_of(piece.sample, piece.begin + t, vocab) : 0);
  }
  return ids;
}

MicroBatch batch_of(const MicroBatchLayout& layout, int64_t vocab) {
  MicroBatch batch;
  std::vector<int64_t> positions, targets;
  batch.starts.push_back(0);
  for (const Piece& piece : layout.pieces) {
    for (int64_t t = 0; t < piece.length + piece.padding; ++t) {
      const bool real = t < piece.length;
      const int64_t position = piece.begin + t;
      positions.push_back(position);
      targets.push_back(real && trained(piece.sample, position) ? token_of(piece.sample, position + 1, vocab) : -1);
    }
    batch.starts.push_back(static_cast<int64_t>(positions.size()));
    batch.sample_keys.push_back(piece.sample);
  }
  batch.ids = at::tensor(ids_of(layout, vocab), at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.targets = at::tensor(targets, at::kLong);
  return batch;
}

// A weight is a function of tensor and element: the same whatever the shard.
float weight_of(const ParameterTensor& tensor, int64_t element) {
  uint64_t h = 1469598103934665603ull;
  for (char ch : tensor.name) h = (h ^ static_cast<unsigned char>(ch)) * 1099511628211ull;
  const double uniform = static_cast<double>(mix(h + static_cast<uint64_t>(element)) >> 11) / 9007199254740992.0 - 0.5;
  const bool norm = tensor.role == Role::Norm1Weight || tensor.role == Role::Norm2Weight || tensor.role == Role::FinalNormWeight ||
                    tensor.role == Role::QueryNorm || tensor.role == Role::KeyNorm;
  return static_cast<float>(norm ? 1.0 + 0.2 * uniform : 0.3 * uniform);
}

void fill(const ParameterGroup& group, int64_t begin, std::span<float> values) {
  for (const ParameterTensor& tensor : group.tensors) {
    const int64_t first = std::max(begin, tensor.offset);
    const int64_t last = std::min(begin + static_cast<int64_t>(values.size()), tensor.offset + tensor.numel());
    for (int64_t e = first; e < last; ++e) values[static_cast<size_t>(e - begin)] = weight_of(tensor, e - tensor.offset);
  }
}

void take_tensors(const ParameterGroup& group, const at::Tensor& flat, std::map<std::string, std::vector<float>>& out) {
  const at::Tensor values = flat.to(at::kFloat);
  for (const ParameterTensor& tensor : group.tensors) {
    const float* data = values.const_data_ptr<float>() + tensor.offset;
    out[tensor.name].assign(data, data + tensor.numel());
  }
}

// A rank's shard of a group's values into the whole tensors.
void take_shard(const ParameterGroup& group, const Range& shard, const float* values, std::map<std::string, std::vector<float>>& out) {
  for (const ParameterTensor& tensor : group.tensors) {
    std::vector<float>& whole = out[tensor.name];
    whole.resize(static_cast<size_t>(tensor.numel()));
    const int64_t first = std::max(shard.begin, tensor.offset), last = std::min(shard.begin + shard.count, tensor.offset + tensor.numel());
    for (int64_t e = first; e < last; ++e) whole[static_cast<size_t>(e - tensor.offset)] = values[e - shard.begin];
  }
}

Layout layout_of(const Case& c, const std::vector<SampleRef>& selection, const Topology& topology, int64_t step) {
  const LayoutLimits limits{.ranks = topology.ranks(), .micro_tokens = c.micro_tokens, .topology = topology, .options = c.sequence, .heads = c.model.heads, .kv_heads = c.model.kv_heads};
  if (c.empty_ends) {
    Layout layout = make_layout(c.layout, selection, limits);
    for (auto& batches : layout.ranks) {
      batches.insert(batches.begin(), MicroBatchLayout{});
      batches.emplace_back();
    }
    return layout;
  }
  if (c.layout != "random") return make_layout(c.layout, selection, limits);
  Layout layout = random_layout(selection, limits, c.seed * 1000 + static_cast<uint64_t>(step));
  route_rings(layout, topology);
  return layout;
}

Placement placement_of(const Case& c, const Topology& topology) { return parse_placement(YAML::Load(c.placement), topology); }

}  // namespace

std::string Case::name() const {
  const std::string shared = layout == "packed" || layout == "padded" ? "" : fmt::format(" {} team {}{}{}", name_of(sequence.sharing), sequence.team, sequence.keys_across ? " across" : "", longest);
  return fmt::format("{} {} {}{} micro {} recompute {} prefetch {} {} {}{} x {}", model.model_type, placement, layout, shared, micro_tokens, recompute_every, prefetch,
                     name_of(compute), samples_per_step, freeze.empty() ? "" : " frozen", steps) + (giant > 0 ? fmt::format(" giant {}", giant) : "");
}

ModelConfig tiny_gpt2() {
  ModelConfig m;
  m.vocab_size = 97;
  m.hidden = 32;
  m.layers = 3;
  m.heads = m.kv_heads = 2;
  m.head_dim = 16;
  m.intermediate = 128;
  m.max_positions = 64;
  return m;
}

ModelConfig tiny_llama() {
  ModelConfig m = tiny_gpt2();
  m.model_type = "llama";
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 8;
  m.intermediate = 72;
  m.norm = NormKind::RmsNorm;
  m.positions = PositionKind::Rope;
  m.activation = ActivationKind::Silu;
  m.gated = true;
  m.fused_qkv = m.transposed = m.qkv_bias = m.output_bias = m.mlp_bias = m.tied_head = false;
  return m;
}

Outcome run(const Case& c) {
  Recipe recipe;
  recipe.model = describe(c.model, c.freeze);
  recipe.topology = Topology(c.levels);
  recipe.placement = placement_of(c, recipe.topology);
  recipe.compute = c.compute;
  for (const OptimizerState& state : optimizer_state_specs(c.optimizer)) recipe.optimizer_states.push_back(state.name);
  recipe.recompute_every = c.recompute_every;
  recipe.prefetch = c.prefetch;
  const auto ranks = static_cast<size_t>(recipe.topology.ranks());
  CommunicatorOptions options;
  options.deadline = std::chrono::milliseconds(120000);
  options.limit_links = c.limit_links;
  auto communicators = make_in_process(recipe.topology, options);

  Outcome outcome;
  outcome.bytes.assign(c.levels.size(), 0);
  outcome.planned_bytes.assign(c.levels.size(), 0);
  outcome.memory.assign(ranks, 0);
  outcome.planned_memory.assign(ranks, 0);
  std::vector<std::vector<int64_t>> sent(ranks);
  std::mutex copies_mutex;
  std::map<std::string, std::vector<char>> copies;  // state, group and first element -> bytes, of the rank that came first
  std::map<std::string, std::pair<size_t, size_t>> gathered;   // hash of what a segment reads, and the rank that came first
  std::vector<std::exception_ptr> failures(ranks);
  const auto rank_main = [&](size_t rank) {
    set_thread_rank(static_cast<int>(rank));
    Communicator& communicator = *communicators[rank];
    Engine* running = nullptr;
    int64_t current = 0;   // the training step, 0 outside of one
    TableSplit table;      // of that step
    const auto before_op = [&](const StepGraph& graph, const Op& op) {
      if (c.delay) std::this_thread::sleep_for(c.delay(graph, op));
      if (op.kind != OpKind::Compute || current == 0) return;
      for (const BufferId id : op.weights) {
        const std::string& name = graph.buffers[static_cast<size_t>(id)].name;
        if (!name.starts_with("gathered.")) continue;
        const at::Tensor& values = running->memory().tensor(id);
        const std::string_view bytes(static_cast<const char*>(values.data_ptr()), values.nbytes());
        const bool backward = op.what == what::kBackward || op.what == what::kRecompute;
        const std::string key = fmt::format("{} step {} micro-batch {} {}", name, current, op.micro_batch, backward ? "backward" : "forward");
        const auto watch = [&](const std::string& what, size_t hash) {
          const std::lock_guard lock(copies_mutex);
          const auto [found, fresh] = gathered.try_emplace(what, hash, rank);
          if (!fresh && found->second.second != rank) ++outcome.gathered;
          if (!fresh && found->second.first != hash) outcome.gathered_diverged.push_back(fmt::format("{} on rank {}", what, rank));
        };
        // Of a table that is refreshed in two parts the embedding has, and reads, the rows of tokens only.
        if (table.refresh && op.micro_batch == 0 && name == "gathered." + recipe.model.groups[*table.group].name) {
          size_t hash = 0;
          const auto width = static_cast<int64_t>(values.element_size());
          table.refresh->hot->visit(0, values.numel(), [&](int64_t first, int64_t count) {
            hash = hash * 31 + std::hash<std::string_view>{}(bytes.substr(static_cast<size_t>(first * width), static_cast<size_t>(count * width)));
          });
          watch(key + ", rows of tokens", hash);
          if (recipe.model.segments[static_cast<size_t>(op.segment)].kind == SegmentKind::Embedding) continue;
        }
        watch(key, std::hash<std::string_view>{}(bytes));
      }
    };
    Engine engine(recipe, communicator, {c.seed, 1, c.optimizer, true, before_op});
    running = &engine;
    const auto fill_case = [&c](const ParameterGroup& group, int64_t begin, std::span<float> values) {
      fill(group, begin, values);
      for (const ParameterTensor& tensor : group.tensors) {
        if (const auto constant = c.constants.find(tensor.name); constant != c.constants.end()) {
          const int64_t first = std::max(begin, tensor.offset), last = std::min(begin + static_cast<int64_t>(values.size()), tensor.offset + tensor.numel());
          for (int64_t e = first; e < last; ++e) values[static_cast<size_t>(e - begin)] = constant->second;
        }
        const int64_t at = tensor.offset - begin;
        if (tensor.name == c.broken_tensor && at >= 0 && at < static_cast<int64_t>(values.size())) values[static_cast<size_t>(at)] = std::nanf("");
      }
    };
    engine.set_weights(fill_case);
    const StepGraph collect = build_step(recipe, static_cast<int64_t>(rank), {}, Work::Collect);
    if (rank == 0) {
      engine.collect(collect, [&](const ParameterGroup& group, const at::Tensor& flat) { take_tensors(group, flat, outcome.initial); });
    } else {
      engine.collect(collect, [](const ParameterGroup&, const at::Tensor&) {});
    }
    const std::vector<int64_t> before = communicator.bytes_sent();
    int64_t activations = collect.activation_bytes, buffers = collect.buffer_bytes;   // each arena keeps its largest size
    for (int64_t step = 1; step <= c.steps; ++step) {
      if (step == c.reload_before) engine.set_weights(fill_case);
      const std::vector<SampleRef> selection = selection_of(c, step);
      const Layout layout = layout_of(c, selection, recipe.topology, step);
      const auto& mine = layout.ranks[rank];
      const StepTokens tokens = step_tokens(layout, [&c](const MicroBatchLayout& batch) { return ids_of(batch, c.model.vocab_size); });
      StepGraph graph = build_step(recipe, static_cast<int64_t>(rank), mine, Work::Train, c.split_table ? &tokens : nullptr);
      if (c.edit_graph) c.edit_graph(graph);
      activations = std::max(activations, graph.activation_bytes);
      buffers = std::max(buffers, graph.buffer_bytes);
      std::vector<MicroBatch> batches;
      for (const MicroBatchLayout& batch : mine) batches.push_back(batch_of(batch, c.model.vocab_size));
      StepSettings settings;
      settings.step = step;
      settings.lr = c.lr;
      settings.clip = c.clip;
      settings.skip_nonfinite = c.skip_nonfinite;
      settings.trained_targets = trained_targets(selection);
      current = step;
      if (c.split_table) table = split_table(recipe, tokens);
      const StepResult result = engine.train(graph, batches, settings);
      current = 0;
      for (size_t g = 0; step == 1 && c.optimizer.name == "sgd" && c.optimizer.momentum > 0 && g < recipe.model.groups.size(); ++g) {
        const std::vector<BufferId>& momentum = engine.memory().state().groups[g].optimizer;
        if (momentum.empty()) continue;
        const GroupPlace place = place_group(recipe, g);
        const std::lock_guard lock(copies_mutex);
        take_shard(*place.group, place.shard(recipe.topology, static_cast<int64_t>(rank), place.optimizer), engine.memory().tensor(momentum.front()).const_data_ptr<float>(), outcome.gradients);
      }
      if (rank == 0) {
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        outcome.updated.push_back(result.updated);
        if (!result.updated) outcome.nonfinite = result.nonfinite;
        outcome.micro_batches = std::max(outcome.micro_batches, layout.micro_batches());
        const PlanSummary summary = summarize(recipe, layout);
        for (size_t l = 0; l < summary.levels.size(); ++l) {
          outcome.planned_bytes[l] += summary.levels[l].bytes_per_step;
          outcome.planned_layout_bytes += summary.levels[l].layout_bytes;
        }
        for (const auto& batches_of : layout.ranks) {
          for (const MicroBatchLayout& batch : batches_of) {
            outcome.remapped += batch.remapped();
            for (const CutPart& part : batch.cuts) outcome.cut += part.member == 0;
          }
        }
      }
    }
    // What a lossy refresh left: ranks that hold the same shard decoded the same, the one that sent it too.
    for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
      const GroupPlace place = place_group(recipe, g);
      if (!place.group->trainable || !refresh_is_lossy(recipe, place)) continue;
      const at::Tensor& values = engine.memory().tensor(engine.memory().state().groups[g].weights);
      const auto* data = static_cast<const char*>(values.data_ptr());
      const std::string key = fmt::format("refreshed {} {}", place.group->name, place.shard(recipe.topology, static_cast<int64_t>(rank), place.weights).begin);
      const std::lock_guard lock(copies_mutex);
      const auto [found, fresh] = copies.try_emplace(key, data, data + values.nbytes());
      if (!fresh && !std::equal(found->second.begin(), found->second.end(), data)) outcome.diverged.push_back(key);
    }
    sent[rank] = communicator.bytes_sent();
    const std::vector<int64_t> moved = communicator.layout_bytes_sent();
    {
      const std::lock_guard lock(copies_mutex);
      outcome.layout_bytes += std::accumulate(moved.begin(), moved.end(), int64_t{0});
    }
    for (size_t l = 0; l < sent[rank].size(); ++l) sent[rank][l] -= before[l];
    const std::vector<SampleRef> selection = selection_of(c, 777);
    const Layout layout = layout_of(c, selection, recipe.topology, 777);
    const StepGraph graph = build_step(recipe, static_cast<int64_t>(rank), layout.ranks[rank], Work::Evaluate);
    std::vector<MicroBatch> batches;
    for (const MicroBatchLayout& batch : layout.ranks[rank]) batches.push_back(batch_of(batch, c.model.vocab_size));
    const auto evaluation = engine.evaluate(graph, batches);
    if (rank == 0) {
      outcome.eval_loss = evaluation.loss.value() / static_cast<double>(evaluation.targets);
      BALLAST_CHECK(evaluation.targets == trained_targets(selection), "{} targets evaluated", evaluation.targets);
      engine.collect(collect, [&](const ParameterGroup& group, const at::Tensor& flat) { take_tensors(group, flat, outcome.weights); });
    } else {
      engine.collect(collect, [](const ParameterGroup&, const at::Tensor&) {});
    }
    // After the evaluation all weights are fresh: ranks that hold the same shard must hold the same bits.
    for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
      const GroupPlace place = place_group(recipe, g);
      const GroupState& state = engine.memory().state().groups[g];
      const auto compare = [&](const char* what, BufferId id, int level) {
        if (id == kNoBuffer) return;
        const at::Tensor& values = engine.memory().tensor(id);
        const auto* data = static_cast<const char*>(values.data_ptr());
        const std::string key = fmt::format("{} {} {}", what, place.group->name, place.shard(recipe.topology, static_cast<int64_t>(rank), level).begin);
        const std::lock_guard lock(copies_mutex);
        const auto [found, fresh] = copies.try_emplace(key, data, data + values.nbytes());
        if (!fresh && !std::equal(found->second.begin(), found->second.end(), data)) outcome.diverged.push_back(key);
      };
      compare("weights", state.weights, place.weights);
      compare("master", state.master, place.optimizer);
      if (state.master == kNoBuffer) continue;
      const Range shard = place.shard(recipe.topology, static_cast<int64_t>(rank), place.optimizer);
      const float* master = engine.memory().tensor(state.master).const_data_ptr<float>();
      const std::lock_guard lock(copies_mutex);
      for (int64_t e = std::max(shard.begin, place.group->numel); e < shard.begin + shard.count; ++e) {
        outcome.padding = std::max(outcome.padding, static_cast<double>(std::abs(master[e - shard.begin])));
      }
    }
    int64_t persistent = 0;
    for (const Buffer& buffer : persistent_state(recipe, static_cast<int64_t>(rank)).buffers) persistent += buffer.bytes();
    activations = std::max(activations, graph.activation_bytes);
    buffers = std::max(buffers, graph.buffer_bytes);
    outcome.memory[rank] = engine.memory().persistent_bytes() + engine.memory().arena_bytes();
    outcome.planned_memory[rank] = persistent + activations + buffers;
  };
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        rank_main(rank);
      } catch (const std::exception& error) {
        failures[rank] = std::current_exception();
        communicators[rank]->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) if (failure) std::rethrow_exception(failure);
  for (const auto& counts : sent) for (size_t l = 0; l < counts.size(); ++l) outcome.bytes[l] += counts[l];
  return outcome;
}

}  // namespace ballast::testing
