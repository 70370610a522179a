#pragma once
// From a configuration to the things that are trained: model, tokenizer, data, recipe. Pure of ranks and processes.
#include <memory>
#include <optional>

#include "ballast/config/run_config.h"
#include "ballast/data/batch.h"
#include "ballast/data/source.h"
#include "ballast/engine/engine.h"
#include "ballast/graph/shards.h"
#include "ballast/layout/policies.h"
#include "ballast/model/model_folder.h"

namespace ballast {

// The model that a configuration names, with its weights where it has some.
struct ModelSource {
  ModelConfig config;
  std::optional<ModelFolder> folder;   // model.path: weights come from there
  std::string text;                    // "gpt2-10m (random weights)"
};

// The tokenizer of data.tokenizer or of the model's folder; nothing if neither is given.
std::shared_ptr<const Tokenizer> open_tokenizer(const RunConfig& config);
// The same where data is read. Throws Error(Usage) if neither is given.
std::shared_ptr<const Tokenizer> need_tokenizer(const RunConfig& config);

// A preset grows its vocabulary to the tokenizer's where that is larger (said in `text`); any other model must hold all ids.
// Throws Error(Usage).
ModelSource open_model(const RunConfig& config, const Tokenizer* tokenizer);

// Checkpoints are model folders: throws Error(Usage) for an architecture that no config.json can say.
void check_storable(const RunConfig& config, const ModelSource& model);

// A model folder whatever the configuration says.
ModelSource open_model_folder(const std::filesystem::path& folder);

// Everything constant of the run but the data.
Recipe make_recipe(const RunConfig& config, const ModelConfig& model, const Topology& topology);
// Another placement, a preset or a table in braces, for the same model and topology. Throws Error(Usage).
void set_placement(Recipe& recipe, const std::string& text);

// Sets the recipe's prefetch where the configuration leaves it to the memory; a host may have less than this one, so all ranks agree.
void choose_prefetch(const RunConfig& config, const Layout& layout, Communicator& communicator, Recipe& recipe);

// The length limit of a sequence: data.sequence.max_tokens, or the model's positions. Throws Error(Usage) if the model has fewer.
int64_t sequence_limit(const RunConfig& config, const ModelConfig& model);
// What layouts of the run keep to. micro_tokens: batch.micro_tokens, or the sequence limit; where layouts cut sequences, the rank's share of a step or
// of the longest sequence, if that is less. Throws Error(Usage) if a sequence would not fit, and what reading the curves throws.
LayoutLimits layout_limits(const RunConfig& config, const ModelConfig& model, const Topology& topology);
// What sequences cost: measured where data.sequence.curves names a file, reckoned from data.sequence.flops and the topology otherwise.
SequenceCost sequence_cost_of(const RunConfig& config, const ModelConfig& model, const Topology& topology);
// Of what the file of data.sequence.curves holds, "none" without one: hosts may have different ones at the same path.
std::string curves_fingerprint(const RunConfig& config);
// A layout for planning without data: the step's tokens in sequences as long as may be, laid out by the run's policy.
Layout assumed_layout_of(const RunConfig& config, const ModelConfig& model, const LayoutLimits& limits);

enum class DataUse : uint8_t { Train, Eval };
// Prepares what is missing, with a progress bar on rank 0, and opens it. Checks the vocabulary. `say`: what it holds, in the log.
std::unique_ptr<DataSet> open_data_of(const RunConfig& config, DataUse use, const Tokenizer& tokenizer, const ModelConfig& model, bool say = true);
// The token stores that the records of a configuration are prepared into.
std::vector<std::filesystem::path> store_paths(const RunConfig& config, DataUse use, const Tokenizer& tokenizer);
std::filesystem::path cache_folder(const RunConfig& config);

// A rank without a sample would only wait, unless layouts cut sequences. Throws Error(Data) if there are fewer samples than ranks.
void check_samples(const RunConfig& config, const Topology& topology, const DataSet& data);

// Steps of the run: train.steps, or as many as train.tokens or train.epochs take. Throws Error(Usage) if none is given.
int64_t run_length(const RunConfig& config, const DataSet& data);

// Weights of a new run: the folder's, or drawn from the seed.
Engine::Fill initial_weights(const ModelSource& model, uint64_t seed);

// One micro-batch as tensors.
MicroBatch to_micro_batch(BatchArrays arrays);

}  // namespace ballast
