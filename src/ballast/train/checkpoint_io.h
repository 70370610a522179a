#pragma once
// Between the engine's shards and the checkpoint's logical tensors: saving and restoring all of a run's state.
#include "ballast/checkpoint/checkpoint.h"
#include "ballast/engine/engine.h"
#include "ballast/model/model_folder.h"
#include "ballast/model/model_writer.h"

namespace ballast {

// What decides how states are cut: ranks, topology, placement levels, groups and optimizer. Equal fingerprints load bit-exactly.
std::string layout_fingerprint(const Recipe& recipe);

// All ranks call it. Writes the checkpoint of state.step: the model folder by rank 0, optimizer states by the first replica of each shard.
void save_checkpoint(const std::filesystem::path& run, const CheckpointState& state, Engine& engine, Communicator& communicator,
                     const ModelWriterOptions& model_options);
// All ranks call it: weights, masters and optimizer states as they were. Throws Error(Usage) for another layout.
void restore_checkpoint(const CheckpointHandle& checkpoint, Engine& engine);

// All ranks call it; rank 0 writes the model's weights to a new folder.
void write_model(const std::filesystem::path& folder, Engine& engine, const ModelWriterOptions& options);

}  // namespace ballast
