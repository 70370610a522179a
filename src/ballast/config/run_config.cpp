#include "ballast/config/run_config.h"

#include <fmt/format.h>

#include <limits>

#include "ballast/base/check.h"
#include "ballast/base/units.h"
#include "ballast/config/config_tree.h"

namespace ballast {

namespace {

RunConfig::Source parse_source(const YamlNode& node) {
  const std::string key = "data.train", expected = "a path, or {path: a.jsonl, weight: 2}";
  RunConfig::Source source;
  if (!node.is_map()) {
    source.path = scalar_of(node, key, expected);
    return source;
  }
  known_keys(node, key, {"path", "weight"});
  const YamlNode* path = node.find("path");
  if (path == nullptr) throw config_error(node.mark, key, "a source without a path").expected(expected);
  source.path = scalar_of(*path, key + ".path", "a path");
  if (const YamlNode* weight = node.find("weight")) {
    source.weight = located(weight->mark, key + ".weight",
                            [&] { return parse_number(scalar_of(*weight, key + ".weight", "a number")); });
    if (!(source.weight > 0))
      throw config_error(weight->mark, key + ".weight", "out of range")
          .found(weight->scalar)
          .expected("> 0")
          .cure("leave the source out");
  }
  return source;
}

void read_sources(const YamlNode& node, RunConfig::Data& data) {
  if (node.is_null()) return;
  if (!node.is_list()) {
    data.train.push_back(parse_source(node));
    return;
  }
  if (node.items.empty())
    throw config_error(node.mark, "data.train", "no files").expected("a list such as [a.jsonl, b.jsonl]");
  for (const YamlNode& item : node.items) {
    data.train.push_back(parse_source(item));
    data.weighted = data.weighted || item.find("weight") != nullptr;
  }
}

void read_recompute(const YamlNode& node, RunConfig::Train& train) {
  const std::string key = "train.recompute", expected = "none, block, or {every: 2}";
  if (node.is_scalar() && node.scalar == "none") return;
  train.recompute = RunConfig::Recompute::Block;
  if (node.is_scalar() && node.scalar == "block") return;
  if (!node.is_map())
    throw config_error(node.mark, key, "not a choice of recompute").found(node.describe()).expected(expected);
  known_keys(node, key, {"every"});
  const YamlNode* every = node.find("every");
  if (every == nullptr) throw config_error(node.mark, key, "an empty map").expected(expected);
  train.recompute_every = located(every->mark, key + ".every",
                                  [&] { return parse_count(scalar_of(*every, key + ".every", "a whole number")); });
  if (train.recompute_every < 1)
    throw config_error(every->mark, key + ".every", "out of range").found(every->scalar).expected(">= 1 blocks");
}

void read_data(const Config& config, RunConfig::Data& data) {
  read_sources(config.node("data.train"), data);
  data.eval = config.texts("data.eval");
  data.format = config.text("data.format");
  for (const std::string name : {"text", "prompt", "completion", "messages", "role", "content"}) {
    const std::string path = "data.fields." + name;
    if (config.origin(path).kind != Origin::Kind::Default && config.text(path) != name)
      data.fields.emplace_back(name, config.text(path));
  }
  data.chat_template = config.maybe_text("data.template").value_or("");
  if (data.format == "chat" && data.chat_template.empty()) {
    throw Error(ErrorKind::Usage, "format chat needs a template")
        .at(config.place("data.format"))
        .cure("set data.template to chatml, llama-3 or mistral");
  }
  data.tokenizer = config.maybe_text("data.tokenizer").value_or("");
  const std::filesystem::path run = config.maybe_text("run.dir").value_or("");
  // "runs/a/" names the folder "runs/a"
  const std::filesystem::path beside = (run.has_filename() ? run : run.parent_path()).parent_path();
  data.cache = config.maybe_text("data.cache").value_or((beside / ".ballast-cache").string());
  data.max_tokens = config.maybe_count("data.sequence.max_tokens");
  data.layout = config.text("data.sequence.layout");
  const std::string sharing = config.text("data.sequence.sharing"), remap = config.text("data.sequence.remap");
  data.sequence.sharing = sharing == "ring" ? Sharing::Ring : sharing == "gather" ? Sharing::Gather : Sharing::Heads;
  data.sequence.team = config.count("data.sequence.team");
  data.sequence.team_memory_bytes = static_cast<double>(config.count("data.sequence.team_memory"));
  data.sequence.keys_across = config.text("data.sequence.keys") == "across";
  data.sequence.remap = remap == "auto" ? Remap::Auto : remap == "always" ? Remap::Always : Remap::Never;
  data.sequence.route = config.text("data.sequence.route") == "auto";
  data.sequence.attention_tokens = config.maybe_count("data.sequence.attention_tokens").value_or(0);
  data.sequence.seed = static_cast<uint64_t>(config.count("run.seed"));
  data.curves = config.maybe_text("data.sequence.curves").value_or("");
  data.flops = static_cast<double>(config.count("data.sequence.flops"));
  const std::string overlong = config.text("data.sequence.overlong");
  data.overlong = overlong == "split"  ? RunConfig::Overlong::Split
                  : overlong == "cut"  ? RunConfig::Overlong::Cut
                  : overlong == "drop" ? RunConfig::Overlong::Drop
                                       : RunConfig::Overlong::Error;
  data.workers = config.count("data.workers");
}

void read_train(const Config& config, RunConfig::Train& train) {
  train.steps = config.maybe_count("train.steps");
  train.tokens = config.maybe_count("train.tokens");
  train.epochs = config.maybe_number("train.epochs");
  train.precision = config.text("train.precision");
  read_recompute(config.node("train.recompute"), train);
  train.freeze = config.texts("train.freeze");
  train.threads = config.count("train.threads");
  train.prefetch = config.count("train.prefetch");
  if (config.has("train.trace")) {
    train.trace = located(config.node("train.trace").mark, "train.trace",
                          [&] { return parse_trace_range(config.text("train.trace")); });
  }
  train.eval_every = config.count("train.eval_every");
  train.eval_batches = config.maybe_count("train.eval_batches");
  train.log_every = config.count("train.log_every");
  train.skip_nonfinite = config.text("train.on_nonfinite") == "skip";
  train.timeout_s = config.number("train.timeout");
}

void read_optimizer(const Config& config, const RunConfig::Train& train, RunConfig::Optimizer& optimizer) {
  OptimizerSpec& spec = optimizer.spec;
  spec.name = config.text("optimizer.name");
  const std::vector<double> betas = config.numbers("optimizer.betas");
  if (betas.size() != 2) {
    throw Error(ErrorKind::Usage, "not two numbers")
        .at(config.place("optimizer.betas"))
        .found(config.node("optimizer.betas").describe())
        .expected("a pair such as [0.9, 0.95]");
  }
  spec.beta1 = betas[0];
  spec.beta2 = betas[1];
  spec.eps = config.number("optimizer.eps");
  spec.momentum = config.number("optimizer.momentum");
  spec.weight_decay = config.number("optimizer.weight_decay");
  // The checks of the plan name the key; the configuration knows where it was written.
  const auto checked = [&](auto check) {
    try {
      check();
    } catch (const Error& error) {
      Error copy = error;
      throw std::move(copy).at(config.schema().find(error.place()) != nullptr ? config.place(error.place())
                                                                              : error.place());
    }
  };
  checked([&] { check_optimizer(spec); });
  optimizer.decay_exclude = config.texts("optimizer.decay_exclude");
  optimizer.clip = config.number("optimizer.clip");
  LrSchedule& schedule = optimizer.schedule;
  schedule.kind = config.text("optimizer.schedule.kind");
  schedule.lr = config.number("optimizer.lr");
  schedule.min_lr = config.number("optimizer.schedule.min_lr");
  schedule.warmup = config.count("optimizer.schedule.warmup");
  schedule.decay = config.count("optimizer.schedule.decay");
  // Without train.steps the length is known later; the rates can be checked already.
  schedule.steps = train.steps.value_or(std::numeric_limits<int64_t>::max() / 2);
  checked([&] { check_schedule(schedule); });
  if (!train.steps) schedule.steps = 1;
}

}  // namespace

RunConfig::TraceRange parse_trace_range(const std::string& text) {
  const size_t colon = text.find(':');
  const auto wrong = [&] {
    return Error(ErrorKind::Usage, "not a range of steps")
        .found("'" + printable(text) + "'")
        .expected("first:last such as 10:12, counting from 1");
  };
  RunConfig::TraceRange range;
  try {
    range.first = parse_count(text.substr(0, colon));
    range.last = colon == std::string::npos ? range.first : parse_count(text.substr(colon + 1));
  } catch (const Error&) {
    throw wrong();
  }
  if (range.first < 1 || range.last < range.first) throw wrong();
  return range;
}

RunConfig run_config_of(Config config) {
  RunConfig out;
  out.run.dir = config.maybe_text("run.dir").value_or("");
  out.run.seed = static_cast<uint64_t>(config.count("run.seed"));
  out.run.tensorboard = config.flag("run.tensorboard");
  out.model.preset = config.maybe_text("model.preset").value_or("");
  out.model.path = config.maybe_text("model.path").value_or("");
  out.model.config = config.maybe_text("model.config").value_or("");
  out.model.vocab_size = config.maybe_count("model.vocab_size");
  out.model.dropout = config.maybe_number("model.dropout");
  read_data(config, out.data);
  if (config.has("topology")) out.topology = parse_topology(config.node("topology"));
  out.placement = config.node("placement");
  out.batch.tokens = config.count("batch.tokens");
  out.batch.micro_tokens = config.maybe_count("batch.micro_tokens");
  read_train(config, out.train);
  out.comm.backend = config.text("comm.backend");
  read_optimizer(config, out.train, out.optimizer);
  out.checkpoint.every = config.count("checkpoint.every");
  out.checkpoint.keep = config.count("checkpoint.keep");
  out.checkpoint.best = config.flag("checkpoint.best");
  out.source = std::move(config);
  return out;
}

RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides) {
  return run_config_of(Config::load(run_schema(), file, overrides));
}

RunConfig parse_run_config(std::string_view text, const std::string& file_name,
                           std::span<const std::string> overrides) {
  return run_config_of(Config::parse(run_schema(), text, file_name, overrides));
}

void require(const RunConfig& config, std::initializer_list<Needs> needs) {
  const auto missing = [](const std::string& keys, const std::string& cure) {
    return Error(ErrorKind::Usage, keys + " is not set").at("configuration").cure(cure);
  };
  for (const Needs need : needs) {
    switch (need) {
      case Needs::Model:
        if (!config.model.given())
          throw missing("model", "add for example 'model: {preset: gpt2-10m}', or path or config");
        break;
      case Needs::TrainData:
        if (config.data.train.empty()) throw missing("data.train", "add for example 'data: {train: [a.jsonl]}'");
        break;
      case Needs::EvalData:
        if (config.data.eval.empty()) throw missing("data.eval", "add 'data.eval=[b.jsonl]'");
        break;
      case Needs::RunFolder:
        if (config.run.dir.empty()) throw missing("run.dir", "add for example 'run: {dir: runs/a}'");
        break;
      case Needs::Length:
        if (!config.train.steps && !config.train.tokens && !config.train.epochs)
          throw missing("the length of the run", "add train.steps, train.tokens or train.epochs");
        break;
    }
  }
}

}  // namespace ballast
