#include "ballast/train/setup.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/log.h"
#include "ballast/data/foreign_store.h"
#include "ballast/graph/summary.h"
#include "ballast/layout/cost_curves.h"
#include "ballast/model/initialize.h"
#include "ballast/plan/placement_groups.h"
#include "ballast/train/machine.h"
#include "ballast/train/progress.h"
#include "ballast/train/run_folder.h"

namespace ballast {

std::shared_ptr<const Tokenizer> open_tokenizer(const RunConfig& config) {
  const std::string& path = config.data.tokenizer.empty() ? config.model.path : config.data.tokenizer;
  return path.empty() ? nullptr : load_tokenizer(path);
}

std::shared_ptr<const Tokenizer> need_tokenizer(const RunConfig& config) {
  auto tokenizer = open_tokenizer(config);
  if (tokenizer == nullptr) {
    throw Error(ErrorKind::Usage, "no tokenizer is given")
        .at("data.tokenizer")
        .cure("name a folder with tokenizer.json, vocab.json and merges.txt, tokenizer.model or a .tiktoken file, or one of these files");
  }
  return tokenizer;
}

ModelSource open_model(const RunConfig& config, const Tokenizer* tokenizer) {
  ModelSource source;
  if (!config.model.path.empty()) {
    source.folder = ModelFolder::open(config.model.path);
    source.config = source.folder->config();
    source.text = config.model.path;
  } else if (!config.model.config.empty()) {
    source.config = read_hf_config(std::filesystem::path(config.model.config));
    source.text = config.model.config + " (random weights)";
  } else if (!config.model.preset.empty()) {
    source.config = preset(config.model.preset);
    source.text = config.model.preset + " (random weights)";
    if (tokenizer != nullptr && !config.model.vocab_size && tokenizer->vocab_size() > source.config.vocab_size) {
      source.text = fmt::format("{} (random weights; vocabulary {} -> {}, the tokenizer's)", config.model.preset, source.config.vocab_size, tokenizer->vocab_size());
      source.config.vocab_size = tokenizer->vocab_size();
    }
  } else {
    throw Error(ErrorKind::Usage, "no model is given").at("model").cure("set model.preset, model.path or model.config");
  }
  source.config.name = config.model.preset.empty() ? (config.model.path.empty() ? config.model.config : config.model.path) : config.model.preset;
  if (config.model.vocab_size) {
    if (source.folder) throw Error(ErrorKind::Usage, "model.vocab_size cannot change a model that has weights").at(config.source.place("model.vocab_size"));
    source.config.vocab_size = *config.model.vocab_size;
  }
  if (config.model.dropout) source.config.dropout_embedding = source.config.dropout_residual = source.config.dropout_attention = *config.model.dropout;
  if (tokenizer != nullptr && tokenizer->vocab_size() > source.config.vocab_size) {
    throw Error(ErrorKind::Usage, "the tokenizer has ids that the model does not know")
        .at(config.data.tokenizer.empty() ? config.model.path : config.data.tokenizer)
        .found(fmt::format("tokenizer of {} ids, model of {}", tokenizer->vocab_size(), source.config.vocab_size))
        .cure("use the model's own tokenizer" + std::string(source.folder ? "" : fmt::format(", or model.vocab_size={}", tokenizer->vocab_size())));
  }
  return source;
}

void check_storable(const RunConfig& config, const ModelSource& model) {
  try {
    write_hf_config(model.config, {}, DType::Float32);
  } catch (const Error& error) {
    if (!config.model.dropout) throw;
    Error copy = error;
    throw std::move(copy).at(config.source.place("model.dropout")).cure("leave model.dropout away: this architecture has none outside its attention");
  }
}

ModelSource open_model_folder(const std::filesystem::path& folder) {
  ModelSource source;
  source.folder = ModelFolder::open(folder);
  source.config = source.folder->config();
  source.config.name = source.text = folder.string();
  return source;
}

namespace {

void check_groups_of(const Recipe& recipe) {
  std::vector<std::string> groups;
  for (const ParameterGroup& group : recipe.model.groups) groups.push_back(group.name);
  check_groups(recipe.placement, groups);
}

}  // namespace

void set_placement(Recipe& recipe, const std::string& text) {
  recipe.placement = parse_placement_text(text, recipe.topology);
  check_groups_of(recipe);
}

Recipe make_recipe(const RunConfig& config, const ModelConfig& model, const Topology& topology) {
  Recipe recipe;
  try {
    recipe.model = describe(model, config.train.freeze);
    check_patterns(recipe.model, config.optimizer.decay_exclude, "optimizer.decay_exclude");
  } catch (const Error& error) {   // the shape names the key; the configuration knows where it was written
    Error copy = error;
    throw std::move(copy).at(config.source.schema().find(error.place()) != nullptr ? config.source.place(error.place()) : error.place());
  }
  for (ParameterGroup& group : recipe.model.groups) {
    for (ParameterTensor& tensor : group.tensors) {
      for (const std::string& glob : config.optimizer.decay_exclude) {
        if (fnmatch(glob.c_str(), tensor.name.c_str(), 0) == 0) tensor.decay = false;
      }
    }
  }
  recipe.topology = topology;
  recipe.placement = placement_of(config, topology);
  try {
    check_groups_of(recipe);
  } catch (const Error& error) {
    Error copy = error;
    throw std::move(copy).at(config.placement.mark.text(), error.place());
  }
  recipe.compute = config.train.precision == "bf16" ? DType::BFloat16 : DType::Float32;
  for (const OptimizerState& state : optimizer_state_specs(config.optimizer.spec)) recipe.optimizer_states.push_back(state.name);
  recipe.recompute_every = config.train.recompute == RunConfig::Recompute::None ? 0 : config.train.recompute_every;
  recipe.prefetch = std::max<int64_t>(1, config.train.prefetch);
  return recipe;
}

void choose_prefetch(const RunConfig& config, const Layout& layout, Communicator& communicator, Recipe& recipe) {
  if (config.train.prefetch != 0) return;
  const int64_t mine = memory_per_rank(communicator);
  std::vector<int64_t> all(static_cast<size_t>(communicator.size()));
  communicator.all_gather_fixed(&mine, sizeof mine, all.data(), "memory");
  recipe.prefetch = prefetch_that_fits(recipe, layout, *std::min_element(all.begin(), all.end()));
}

int64_t sequence_limit(const RunConfig& config, const ModelConfig& model) {
  const int64_t limit = config.data.max_tokens.value_or(model.max_positions);
  if (limit > model.max_positions) {
    throw Error(ErrorKind::Usage, "sequences may be longer than the model has positions")
        .at(config.source.place("data.sequence.max_tokens"))
        .found(fmt::format("{} tokens, {} positions", limit, model.max_positions))
        .cure(fmt::format("set data.sequence.max_tokens to {} or less", model.max_positions));
  }
  return limit;
}

LayoutLimits layout_limits(const RunConfig& config, const ModelConfig& model, const Topology& topology) {
  const int64_t limit = sequence_limit(config, model), ranks = topology.ranks();
  const bool cuts = layout_cuts(config.data.layout) && ranks > 1;
  const auto share = [ranks](int64_t tokens) { return (tokens + ranks - 1) / ranks; };
  LayoutLimits limits{.ranks = ranks, .topology = topology, .options = config.data.sequence, .heads = model.heads, .kv_heads = model.kv_heads};
  const int64_t least = least_micro_tokens(config.data.layout, limit, limits);   // that holds any sequence
  limits.micro_tokens = config.batch.micro_tokens.value_or(cuts ? std::max(least, std::min(limit, share(config.batch.tokens))) : limit);
  if (limits.micro_tokens < least) {
    throw Error(ErrorKind::Usage, cuts ? "a sequence may be longer than the micro-batches of all ranks together" : "a sequence may be longer than a micro-batch")
        .at(config.source.place("batch.micro_tokens"))
        .found(fmt::format("batch.micro_tokens {}, data.sequence.max_tokens {}, {} ranks", limits.micro_tokens, limit, ranks))
        .expected(cuts ? "micro-batches that together hold at least one whole sequence" : fmt::format("micro-batches that hold at least one whole sequence: the layout {} does not cut", config.data.layout))
        .cure(fmt::format("set batch.micro_tokens to {} or more, or a smaller data.sequence.max_tokens", least));
  }
  limits.cost = sequence_cost_of(config, model, topology);
  return limits;
}

SequenceCost sequence_cost_of(const RunConfig& config, const ModelConfig& model, const Topology& topology) {
  SequenceCost cost = sequence_cost(model, topology, config.data.flops, config.train.precision == "bf16" ? 2 : 4);
  if (!config.data.curves.empty()) apply(parse_cost_curves(read_file(config.data.curves), config.data.curves), topology, cost);
  return cost;
}

std::string curves_fingerprint(const RunConfig& config) {
  if (config.data.curves.empty()) return "none";
  const std::string text = read_file(config.data.curves);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

Layout assumed_layout_of(const RunConfig& config, const ModelConfig& model, const LayoutLimits& limits) {
  const int64_t sequence = sequence_limit(config, model);
  if (!layout_cuts(config.data.layout)) {
    const int64_t batches = std::max<int64_t>(1, (config.batch.tokens + limits.ranks * limits.micro_tokens - 1) / (limits.ranks * limits.micro_tokens));
    return assumed_layout(limits.ranks, batches, limits.micro_tokens, std::min(sequence, limits.micro_tokens));
  }
  std::vector<SampleRef> samples;
  for (int64_t tokens = std::max(config.batch.tokens, sequence); tokens > 0; tokens -= sequence) samples.push_back({samples.size(), std::min(sequence, tokens)});
  return make_layout(config.data.layout, samples, limits);
}

std::filesystem::path cache_folder(const RunConfig& config) {
  if (!config.data.cache.empty()) return config.data.cache;
  if (config.run.dir.empty()) return ".ballast-cache";
  // Beside the run folder, so that the next run of the same data finds the stores.
  const std::filesystem::path dir = std::filesystem::path(config.run.dir).lexically_normal();
  const std::filesystem::path parent = (dir.has_filename() ? dir : dir.parent_path()).parent_path();
  return parent / ".ballast-cache";
}

namespace {

Overlong policy_of(RunConfig::Overlong overlong) {
  switch (overlong) {
    case RunConfig::Overlong::Split: return Overlong::Split;
    case RunConfig::Overlong::Cut: return Overlong::Cut;
    case RunConfig::Overlong::Drop: return Overlong::Drop;
    case RunConfig::Overlong::Error: return Overlong::Fail;
  }
  return Overlong::Split;
}

RecordFormat format_of(const RunConfig& config) {
  return parse_format(config.data.format, {config.data.fields.begin(), config.data.fields.end()}, config.data.chat_template);
}

std::vector<DataSource> sources_of(const RunConfig& config, DataUse use) {
  std::vector<DataSource> sources;
  if (use == DataUse::Eval) {
    sources.push_back({config.data.eval, std::nullopt});
  } else if (config.data.weighted) {
    for (const RunConfig::Source& source : config.data.train) sources.push_back({{source.path}, source.weight});
  } else {
    DataSource all;
    for (const RunConfig::Source& source : config.data.train) all.paths.push_back(source.path);
    sources.push_back(all);
  }
  return sources;
}

}  // namespace

std::vector<std::filesystem::path> store_paths(const RunConfig& config, DataUse use, const Tokenizer& tokenizer) {
  std::vector<std::filesystem::path> stores;
  for (const DataSource& source : sources_of(config, use)) {
    std::vector<std::string> records;
    for (const std::string& path : source.paths) if (!is_foreign(path) && std::filesystem::path(path).extension() != ".store") records.push_back(path);
    if (!records.empty()) stores.push_back(store_path(records, format_of(config), tokenizer, cache_folder(config)));
  }
  return stores;
}

std::unique_ptr<DataSet> open_data_of(const RunConfig& config, DataUse use, const Tokenizer& tokenizer, const ModelConfig& model, bool say) {
  const std::vector<DataSource> sources = sources_of(config, use);
  DataOptions options;
  options.format = format_of(config);
  options.limit = {sequence_limit(config, model), policy_of(config.data.overlong)};
  options.prepare.cache = cache_folder(config);
  options.prepare.threads = static_cast<int>(config.data.workers);
  // Where the cache lies beside the run folder, what is wrong with it is said of run.dir.
  const bool beside = !config.source.has("data.cache") && !config.run.dir.empty();
  if (beside && !store_paths(config, use, tokenizer).empty()) make_folders_of_run(config, options.prepare.cache);
  std::unique_ptr<ProgressBar> bar;
  int64_t shown = 0;
  if (thread_rank() <= 0) {
    options.prepare.progress = [&](const PrepareProgress& progress) {
      if (bar == nullptr) bar = std::make_unique<ProgressBar>("tokenize", progress.bytes_total, ProgressUnit::Bytes);
      bar->advance(progress.bytes_done - shown);
      shown = progress.bytes_done;
    };
  }
  std::unique_ptr<DataSet> data = open_data(sources, tokenizer, options);
  if (bar != nullptr) bar->finish();
  data->check_vocabulary(model.vocab_size);
  if (say) log_info("{} data: {}", use == DataUse::Train ? "training" : "evaluation", data->report());
  return data;
}

void check_samples(const RunConfig& config, const Topology& topology, const DataSet& data) {
  const int64_t samples = data.counts().samples;
  if (samples >= topology.ranks() || layout_cuts(config.data.layout)) return;
  throw Error(ErrorKind::Data, "there are more ranks than samples")
      .at(config.source.place("data.train"))
      .found(fmt::format("{} sample{}, {}", samples, samples == 1 ? "" : "s", topology.text()))
      .expected("a sample for every rank")
      .cure(fmt::format("start at most {} rank{}, give more data, or lower data.sequence.max_tokens so that records are split", samples, samples == 1 ? "" : "s"));
}

int64_t run_length(const RunConfig& config, const DataSet& data) {
  if (config.train.steps) return *config.train.steps;
  if (!config.train.tokens && !config.train.epochs) {
    throw Error(ErrorKind::Usage, "the length of the run is not given").at("train").cure("set train.steps, train.tokens or train.epochs");
  }
  const double goal = config.train.tokens ? static_cast<double>(*config.train.tokens) : *config.train.epochs * static_cast<double>(data.tokens_per_epoch());
  Selector selector(data, config.run.seed, config.batch.tokens);
  int64_t steps = 0;
  while (static_cast<double>(selector.cursor().tokens) < goal) {
    selector.next();
    ++steps;
  }
  return std::max<int64_t>(1, steps);
}

Engine::Fill initial_weights(const ModelSource& model, uint64_t seed) {
  return [&model, seed](const ParameterGroup& group, int64_t begin, std::span<float> values) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(values.size()), group.numel - begin);
    if (count <= 0) return;
    if (model.folder) {
      model.folder->load_range(group, begin, begin + count, values.data());
    } else {
      initialize_range(model.config, group, seed, begin, begin + count, values.data());
    }
  };
}

MicroBatch to_micro_batch(BatchArrays arrays) {
  MicroBatch batch;
  batch.ids = at::tensor(arrays.ids, at::kLong);
  batch.positions = at::tensor(arrays.positions, at::kLong);
  batch.targets = at::tensor(arrays.targets, at::kLong);
  batch.starts = std::move(arrays.starts);
  batch.sample_keys = std::move(arrays.sample_keys);
  return batch;
}

}  // namespace ballast
