#include "ballast/train/run_config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <limits>

#include "ballast/base/check.h"
#include "ballast/base/files.h"
#include "ballast/base/units.h"

namespace ballast {

namespace {

// Runs `read` and gives its Error(Usage) the place of the value.
template <class Function>
auto located(const Mark& mark, const std::string& key, Function read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.place().starts_with(mark.text())) throw;
    Error copy = error;
    throw std::move(copy).at(mark.text(), error.place().empty() ? key : error.place());
  }
}

void known_keys(const YamlNode& map, const std::string& key, const std::vector<std::string>& known) {
  for (const YamlEntry& entry : map.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    const std::string near = nearest(entry.key, known);
    throw config_error(entry.mark, key, fmt::format("unknown key '{}'", printable(entry.key)))
        .expected(fmt::format("{}", fmt::join(known, ", ")))
        .cure(near.empty() ? "" : "did you mean '" + near + "'?");
  }
}

const std::string& scalar_of(const YamlNode& node, const std::string& key, const std::string& expected) {
  if (!node.is_scalar() || node.scalar.empty())
    throw config_error(node.mark, key, "not a single value").found(node.describe()).expected(expected);
  return node.scalar;
}

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

// The tree as text for yaml-cpp in which every node stands in its own line and column: so that errors of other readers
// name the place of the file.
void write_in_place(const YamlNode& node, std::string& out, int64_t& line, int64_t& column) {
  const auto put = [&](const std::string& text) {
    out += text;
    column += static_cast<int64_t>(text.size());
  };
  const auto move_to = [&](const Mark& mark) {
    for (; line < mark.line; ++line, column = 1) out += '\n';
    if (line == mark.line && column < mark.column) put(std::string(static_cast<size_t>(mark.column - column), ' '));
  };
  move_to(node.mark);
  if (node.is_list()) {
    put("[");
    for (size_t i = 0; i < node.items.size(); ++i) {
      if (i > 0) put(", ");
      write_in_place(node.items[i], out, line, column);
    }
    put("]");
  } else if (node.is_map()) {
    put("{");
    for (size_t i = 0; i < node.entries.size(); ++i) {
      if (i > 0) put(", ");
      move_to(node.entries[i].mark);
      put(scalar_text(node.entries[i].key) + ": ");
      write_in_place(node.entries[i].value, out, line, column);
    }
    put("}");
  } else {
    put(node.is_null() ? "null" : scalar_text(node.scalar, node.quoted));
  }
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

Topology parse_topology(const YamlNode& node) {
  const std::string expected = "a map of levels, innermost first, such as {pair: 2, node: 4}, or the path of a .yaml file that holds one";
  if (node.is_scalar() && (node.scalar.ends_with(".yaml") || node.scalar.ends_with(".yml"))) {  // a file as `ballast doctor --links` prints it: the map, or a key `topology` with it
    const YamlNode file = located(node.mark, "topology", [&] { return parse_yaml(read_file(node.scalar), node.scalar); });
    const YamlNode* inside = file.is_map() ? file.find("topology") : nullptr;
    const YamlNode& levels = inside == nullptr ? file : *inside;
    if (levels.is_scalar()) throw config_error(levels.mark, "topology", "a file that names a file").found(levels.describe()).expected("a map of levels");
    return parse_topology(levels);
  }
  if (!node.is_map())
    throw config_error(node.mark, "topology", "not a map of levels").found(node.describe()).expected(expected);
  std::vector<Level> levels;
  for (const YamlEntry& entry : node.entries) {
    const std::string key = "topology." + printable(entry.key);
    Level level;
    level.name = entry.key;
    if (const size_t colon = entry.key.find(':'); colon != std::string::npos && entry.value.is_null()) {
      throw config_error(entry.mark, key, "a level without a size")
          .found(printable(entry.key))
          .cure(fmt::format("write '{}: {}', with a space after the colon", printable(entry.key.substr(0, colon)), printable(entry.key.substr(colon + 1))));
    }
    const YamlNode* size = &entry.value;
    if (entry.value.is_map()) {
      known_keys(entry.value, key, {"size", "bandwidth", "latency", "links"});
      size = entry.value.find("size");
      if (size == nullptr)
        throw config_error(entry.value.mark, key, "a level without a size")
            .expected("{size: 2, bandwidth: 1Gbit, latency: 3ms}");
      if (const YamlNode* bandwidth = entry.value.find("bandwidth")) {
        level.bandwidth = located(bandwidth->mark, key + ".bandwidth", [&] {
          return parse_rate(scalar_of(*bandwidth, key + ".bandwidth", "a rate such as 200MB/s"));
        });
      }
      if (const YamlNode* latency = entry.value.find("latency")) {
        level.latency = located(latency->mark, key + ".latency", [&] {
          return parse_time(scalar_of(*latency, key + ".latency", "a time such as 3ms"));
        });
      }
      if (const YamlNode* links = entry.value.find("links")) {
        level.links = located(links->mark, key + ".links", [&] { return parse_count(scalar_of(*links, key + ".links", "a whole number")); });
      }
    }
    level.size = located(size->mark, key, [&] {
      return parse_count(scalar_of(*size, key, "a whole number, or {size, bandwidth, latency, links}"));
    });
    if (level.size < 1)
      throw config_error(size->mark, key, "out of range").found(size->scalar).expected(">= 1 units of the level below");
    levels.push_back(std::move(level));
  }
  return located(node.mark, "topology", [&] { return Topology(std::move(levels)); });
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

Topology topology_of(const RunConfig& config, int64_t ranks) {
  if (ranks < 0) throw Error(ErrorKind::Usage, "the number of ranks is negative").found(std::to_string(ranks));
  if (!config.topology) return Topology::flat(std::max<int64_t>(ranks, 1));
  if (ranks != 0 && config.topology->ranks() != ranks) {
    std::string cure = "change one of topology and --ranks";
    for (int level = 0; level < config.topology->outermost(); ++level) {
      const int64_t unit = config.topology->group_size(level);
      if (ranks % unit == 0) continue;
      const std::string& name = config.topology->level(level).name;
      std::string fewer = ranks < unit ? "" : fmt::format("leave {} out (--ranks {}", ranks % unit, ranks - ranks % unit);
      if (!fewer.empty() && level + 1 == config.topology->outermost()) fewer += fmt::format(" with {}: {}", config.topology->level(level + 1).name, ranks / unit);
      if (!fewer.empty()) fewer += "), or ";
      cure = fmt::format("{} is no multiple of the {} ranks of a {}, and a last {} with fewer is not supported: {}use one level, as in topology={{{}: {}}}", ranks, unit, name, name,
                         fewer, name, ranks);
      break;
    }
    throw Error(ErrorKind::Usage, "the topology and the number of ranks disagree")
        .at(config.source.place("topology"))
        .found(config.topology->text())
        .expected(fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"))
        .cure(cure);
  }
  return *config.topology;
}

Placement placement_of(const RunConfig& config, const Topology& topology) {
  const YamlNode& node = config.placement;
  return located(node.mark, "placement", [&] {
    if (node.is_scalar()) return parse_placement_preset(node.scalar, topology);
    std::string text;
    int64_t line = 1, column = 1;
    write_in_place(node, text, line, column);
    return parse_placement(YAML::Load(text), topology);
  });
}

}  // namespace ballast
