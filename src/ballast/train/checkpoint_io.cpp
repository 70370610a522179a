#include "ballast/train/checkpoint_io.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/checkpoint/load.h"
#include "ballast/checkpoint/writer.h"

namespace ballast {

std::string layout_fingerprint(const Recipe& recipe) {
  std::string text = recipe.topology.text();
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    text += fmt::format("|{}:{}:{}", place.group->name, place.padded, place.optimizer);
  }
  for (const std::string& state : recipe.optimizer_states) text += "|" + state;
  uint64_t hash = 1469598103934665603ull;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return fmt::format("{:016x}", hash);
}

namespace {

// Calls visit(item) for each part of a logical tensor's state that this rank holds; item.data views the engine's buffer.
template <class Visit>
void for_each_item(const Engine& engine, Visit&& visit) {
  const Recipe& recipe = engine.recipe();
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    const GroupState& state = engine.memory().state().groups[g];
    const Range shard = place.shard(recipe.topology, engine.rank(), place.optimizer);
    for (size_t s = 0; s < state.optimizer.size(); ++s) {
      const at::Tensor& values = engine.memory().tensor(state.optimizer[s]);
      for (const ParameterTensor& tensor : place.group->tensors) {
        const int64_t begin = std::max(shard.begin, tensor.offset), end = std::min(shard.begin + shard.count, tensor.offset + tensor.numel());
        if (begin >= end) continue;
        visit(StateItem{recipe.optimizer_states[s], tensor.name, begin - tensor.offset, end - tensor.offset, values.narrow(0, begin - shard.begin, end - begin)},
              engine.rank() < recipe.topology.group_size(place.optimizer));
      }
    }
  }
}

}  // namespace

void write_model(const std::filesystem::path& folder, Engine& engine, const ModelWriterOptions& options) {
  std::unique_ptr<ModelWriter> writer;
  if (engine.rank() == 0) writer = std::make_unique<ModelWriter>(folder, engine.recipe().model, options);
  const StepGraph graph = build_step(engine.recipe(), engine.rank(), {}, Work::Collect);
  engine.collect(graph, [&](const ParameterGroup& group, const at::Tensor& flat) {
    if (writer == nullptr) return;
    const at::Tensor values = flat.scalar_type() == at::kFloat ? flat : flat.to(at::kFloat);
    writer->write_group(group, values.const_data_ptr<float>());
  });
  if (writer != nullptr) writer->finish();
}

void save_checkpoint(const std::filesystem::path& run, const CheckpointState& state, Engine& engine, Communicator& communicator,
                     const ModelWriterOptions& model_options) {
  CheckpointWriter writer(run, state.step, communicator.rank(), communicator.size());
  communicator.barrier("checkpoint folder");
  for_each_item(engine, [&](StateItem item, bool first_replica) {
    if (first_replica) writer.add(std::move(item));
  });
  write_model(writer.model_folder(), engine, model_options);
  const std::vector<std::string> shards = communicator.all_gather_text(writer.finish_rank(), "checkpoint shards");
  if (communicator.rank() == 0) writer.commit(state, shards);
  communicator.barrier("checkpoint commit");
}

void restore_checkpoint(const CheckpointHandle& checkpoint, Engine& engine) {
  checkpoint.require_layout(engine.recipe().topology.ranks(), layout_fingerprint(engine.recipe()));
  const ModelFolder folder = ModelFolder::open(checkpoint.model_folder());
  engine.set_weights([&](const ParameterGroup& group, int64_t begin, std::span<float> values) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(values.size()), group.numel - begin);
    if (count > 0) folder.load_range(group, begin, begin + count, values.data());
  });
  const StateReader reader(checkpoint);
  for_each_item(engine, [&](const StateItem& item, bool) { reader.read(item); });
}

}  // namespace ballast
