// The configuration of a run: the example of the manual value by value, every form a key takes, and key and line of
// what is wrong.
#include "ballast/config/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/base/files.h"

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kExample = R"(run: {dir: runs/a, seed: 7}
model: {preset: gpt2-10m}                # or {path: HF_FOLDER} or {config: config.json}
data: {train: [a.jsonl], eval: [b.jsonl], format: prompt-completion, tokenizer: FOLDER, sequence: {max_tokens: 256, layout: packed}}
topology: {pair: 2, node: 2}             # innermost first, each number counts units of the level below: 4 ranks
placement: hsdp(pair)
batch: {tokens: 4096, micro_tokens: 1024}
train: {steps: 100, precision: bf16, recompute: none}
optimizer: {name: adamw, lr: 6e-4, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, clip: 1.0, schedule: {kind: cosine, warmup: 20, min_lr: 6e-5}}
checkpoint: {every: 50, keep: 2}
)";

RunConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(text, "a.yaml", overrides);
}

template <class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RunConfig, TheExampleMeansWhatItSays) {
  const RunConfig config = read(kExample);
  EXPECT_EQ(config.run.dir, "runs/a");
  EXPECT_EQ(config.run.seed, 7u);
  EXPECT_EQ(config.model.preset, "gpt2-10m");
  EXPECT_TRUE(config.model.path.empty());
  EXPECT_THAT(config.data.train, ElementsAre(RunConfig::Source{"a.jsonl", 1}));
  EXPECT_FALSE(config.data.weighted);
  EXPECT_THAT(config.data.eval, ElementsAre("b.jsonl"));
  EXPECT_EQ(config.data.format, "prompt-completion");
  EXPECT_TRUE(config.data.fields.empty());
  EXPECT_EQ(config.data.tokenizer, "FOLDER");
  EXPECT_EQ(config.data.cache, "runs/.ballast-cache");
  EXPECT_EQ(config.data.max_tokens, 256);
  EXPECT_EQ(config.data.layout, "packed");
  EXPECT_EQ(config.data.overlong, RunConfig::Overlong::Split);
  ASSERT_TRUE(config.topology);
  EXPECT_EQ(config.topology->text(), "{pair: 2, node: 2} = 4 ranks");
  EXPECT_EQ(config.placement.scalar, "hsdp(pair)");
  EXPECT_EQ(config.batch.tokens, 4096);
  EXPECT_EQ(config.batch.micro_tokens, 1024);
  EXPECT_EQ(config.train.steps, 100);
  EXPECT_EQ(config.train.tokens, std::nullopt);
  EXPECT_EQ(config.train.precision, "bf16");
  EXPECT_EQ(config.train.recompute, RunConfig::Recompute::None);
  EXPECT_EQ(config.train.timeout_s, 300);
  EXPECT_EQ(config.comm.backend, "auto");
  EXPECT_FALSE(config.train.skip_nonfinite);
  const OptimizerSpec expected{
      .name = "adamw", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9};
  EXPECT_EQ(config.optimizer.spec, expected);
  EXPECT_EQ(config.optimizer.clip, 1.0);
  const LrSchedule schedule{.kind = "cosine", .lr = 6e-4, .min_lr = 6e-5, .warmup = 20, .steps = 100, .decay = 0};
  EXPECT_EQ(config.optimizer.schedule, schedule);
  EXPECT_EQ(config.checkpoint.every, 50);
  EXPECT_EQ(config.checkpoint.keep, 2);
  EXPECT_TRUE(config.checkpoint.best);
  require(config, {Needs::Model, Needs::TrainData, Needs::EvalData, Needs::RunFolder, Needs::Length});
  EXPECT_EQ(topology_of(config, 0).ranks(), 4);
  EXPECT_EQ(placement_of(config, topology_of(config, 4)).name, "hsdp(pair)");
}

TEST(RunConfig, TheResolvedConfigReadsBack) {
  const RunConfig config =
      read(kExample, {"topology={pair: 2, node: {size: 3, bandwidth: 1Gbit, latency: 3ms}}",
                      "train.recompute={every: 2}", "data.train=[{path: a b.jsonl, weight: 2}, c.txt]"});
  const std::string text = config.source.write();
  const RunConfig again = parse_run_config(text, "config.yaml");
  EXPECT_EQ(again.source.fingerprint(), config.source.fingerprint());
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.topology->ranks(), 6);
  EXPECT_EQ(again.train.recompute_every, 2);
  EXPECT_THAT(text, HasSubstr("seed: 7  # a.yaml:1\n"));
  EXPECT_THAT(text, HasSubstr("keep: 2  # a.yaml:9\n"));
  EXPECT_THAT(text, HasSubstr("log_every: 10  # default\n"));
}

TEST(RunConfig, OverridesTakeTheFormsOfTheManual) {
  const RunConfig config =
      read(kExample, {"topology={pair: 2, node: 4, cluster: 48}", "data.eval=[x.jsonl]", "placement=zero3",
                      "train.epochs=1.5", "model.path=HF", "batch.tokens=2M", "train.timeout=2h",
                      "data.sequence.overlong=drop", "optimizer.schedule.kind=wsd", "optimizer.schedule.decay=30",
                      "train.freeze=['*wte*', 'h.0.*']", "data.fields={prompt: question, completion: answer}"});
  EXPECT_EQ(config.topology->ranks(), 384);
  EXPECT_THAT(config.data.eval, ElementsAre("x.jsonl"));
  EXPECT_EQ(config.placement.scalar, "zero3");
  EXPECT_EQ(config.train.epochs, 1.5);
  EXPECT_EQ(config.train.steps, std::nullopt);
  EXPECT_EQ(config.optimizer.schedule.steps, 1);
  EXPECT_EQ(config.model.path, "HF");
  EXPECT_TRUE(config.model.preset.empty());
  EXPECT_EQ(config.batch.tokens, 2'000'000);
  EXPECT_EQ(config.train.timeout_s, 7200);
  EXPECT_EQ(config.data.overlong, RunConfig::Overlong::Drop);
  EXPECT_EQ(config.optimizer.schedule.decay, 30);
  EXPECT_THAT(config.train.freeze, ElementsAre("*wte*", "h.0.*"));
  EXPECT_THAT(config.data.fields, ElementsAre(std::pair<std::string, std::string>("prompt", "question"),
                                              std::pair<std::string, std::string>("completion", "answer")));
}

TEST(RunConfig, RatesOfComputeTakePrefixes) {
  EXPECT_EQ(read(kExample).data.flops, 1e11);
  for (const char* text : {"180T", "180000G", "1.8e14", "180e12"}) EXPECT_EQ(read(kExample, {std::string("data.sequence.flops=") + text}).data.flops, 1.8e14) << text;
  for (const char* text : {"0", "-1", "180X", "T", "1e30"}) EXPECT_THROW(read(kExample, {std::string("data.sequence.flops=") + text}), Error) << text;
}

TEST(RunConfig, SourcesAndCachesAndRecompute) {
  EXPECT_THAT(read("data: {train: a.txt}").data.train, ElementsAre(RunConfig::Source{"a.txt", 1}));
  const RunConfig mixed = read("data:\n  train:\n    - a.jsonl\n    - {path: b.jsonl, weight: 0.5}\n");
  EXPECT_THAT(mixed.data.train, ElementsAre(RunConfig::Source{"a.jsonl", 1}, RunConfig::Source{"b.jsonl", 0.5}));
  EXPECT_TRUE(mixed.data.weighted);
  EXPECT_EQ(read("").data.cache, ".ballast-cache");
  EXPECT_EQ(read("run: {dir: a}").data.cache, ".ballast-cache");
  EXPECT_EQ(read("run: {dir: x/a/}").data.cache, "x/.ballast-cache");
  EXPECT_EQ(read("run: {dir: /x/a}").data.cache, "/x/.ballast-cache");
  EXPECT_EQ(read("data: {cache: c}\nrun: {dir: x/a}").data.cache, "c");
  EXPECT_EQ(read("train: {recompute: block}").train.recompute, RunConfig::Recompute::Block);
  EXPECT_EQ(read("train: {recompute: block}").train.recompute_every, 1);
  EXPECT_EQ(read("train: {recompute: {every: 3}}").train.recompute_every, 3);
  EXPECT_EQ(read("train: {trace: 10:12}").train.trace, (RunConfig::TraceRange{10, 12}));
  EXPECT_EQ(parse_trace_range("5"), (RunConfig::TraceRange{5, 5}));
  EXPECT_EQ(read("data: {format: chat, template: llama-3}").data.chat_template, "llama-3");
}

TEST(RunConfig, TopologiesInOrderWithLinks) {
  const RunConfig config = read("topology:\n  pair: 2\n  node: {size: 4, bandwidth: 200MB/s, latency: 250us}\n");
  ASSERT_EQ(config.topology->level_count(), 2);
  EXPECT_EQ(config.topology->level(0).name, "pair");
  EXPECT_EQ(config.topology->level(0).bandwidth, std::nullopt);
  EXPECT_EQ(config.topology->level(1).size, 4);
  EXPECT_EQ(config.topology->level(1).bandwidth, 200e6);
  EXPECT_EQ(config.topology->level(1).latency, 250e-6);
  EXPECT_EQ(topology_of(config, 8).ranks(), 8);
  EXPECT_THAT(message_of([&] { topology_of(config, 4); }), HasSubstr("a.yaml:2:3, topology"));
  EXPECT_THAT(message_of([&] { topology_of(config, 4); }), HasSubstr("expected: 4 ranks"));
  const RunConfig uneven = read("topology: {node: 2, cluster: 3}\n");
  EXPECT_THAT(message_of([&] { topology_of(uneven, 5); }),
              HasSubstr("5 is no multiple of the 2 ranks of a node, and a last node with fewer is not supported: leave 1 out (--ranks 4 with cluster: 2), or use one level, as in topology={node: 5}"));
  EXPECT_THAT(message_of([&] { topology_of(uneven, 1); }), HasSubstr("not supported: use one level, as in topology={node: 1}"));
  EXPECT_THAT(message_of([&] { topology_of(uneven, 4); }), HasSubstr("change one of topology and --ranks"));
  EXPECT_EQ(topology_of(read(""), 3).text(), "{node: 3} = 3 ranks");
  EXPECT_EQ(topology_of(read(""), 0).ranks(), 1);
}

TEST(RunConfig, PlacementTablesKeepTheirPlaces) {
  const RunConfig config = read(
      "topology: {pair: 2, node: 2}\nplacement:\n  weights: {shard: pair}\n  gradients: {shard: node}\n  optimizer: "
      "{shard: node, storage: fp32}\n  wire: {forward: bf16, reduce: [bf16, native]}\n");
  const Topology topology = topology_of(config, 0);
  const Placement placement = placement_of(config, topology);
  ASSERT_EQ(placement.rows.size(), 1u);
  EXPECT_EQ(placement.rows[0].weights.level, 0);
  EXPECT_EQ(placement.rows[0].gradients.level, 1);
  EXPECT_EQ(placement.rows[0].optimizer.level, 1);
  EXPECT_EQ(placement.rows[0].wire[static_cast<size_t>(Movement::Reduce)].size(), 2u);

  const RunConfig wrong = read(
      "topology: {pair: 2, node: 2}\nplacement:\n  weights: {shard: pair}\n  optimizer:\n    shard: node\n    "
      "storrage: fp32\n");
  const std::string message = message_of([&] { placement_of(wrong, topology); });
  EXPECT_THAT(message, HasSubstr("a.yaml:3:3"));
  EXPECT_THAT(message, HasSubstr("line 6"));
  EXPECT_THAT(message, HasSubstr("did you mean 'storage'?"));
  EXPECT_THAT(message_of([&] { placement_of(read("\n\nplacement: hsdp(par)\n"), topology); }),
              HasSubstr("did you mean 'pair'?"));
  EXPECT_THAT(message_of([&] { placement_of(read("\n\nplacement: hsdp(par)\n"), topology); }),
              HasSubstr("a.yaml:3:12"));
  EXPECT_THAT(message_of([&] { placement_of(read("", {"placement=zero33"}), topology); }),
              HasSubstr("command line 'placement=zero33'"));
}

TEST(RunConfig, WrongValuesNameKeyAndPlace) {
  struct Row {
    std::string text, place, what;
  };
  const std::vector<Row> table{
      {"model: {preset: a, path: b}\n", "a.yaml:1:20, model.path",
       "'model.preset' and 'model.path' exclude each other"},
      {"train: {steps: 3, tokens: 2M}\n", "train.tokens", "exclude each other"},
      {"data: {train: []}\n", "a.yaml:1:15, data.train", "no files"},
      {"data: {train: [a, [b]]}\n", "a.yaml:1:19, data.train", "a list of 1"},
      {"data: {train: [{weight: 2}]}\n", "a.yaml:1:16, data.train", "a source without a path"},
      {"data: {train: [{path: a, weigth: 2}]}\n", "a.yaml:1:26, data.train", "did you mean 'weight'?"},
      {"data: {train: [{path: a, weight: 0}]}\n", "a.yaml:1:34, data.train.weight", "expected: > 0"},
      {"data: {train: [{path: a, weight: much}]}\n", "a.yaml:1:34, data.train.weight", "found:    'much'"},
      {"data: {format: jsonl}\n", "a.yaml:1:16, data.format", "expected: text, prompt-completion, chat"},
      {"data: {format: chat}\n", "a.yaml:1:16, data.format", "set data.template"},
      {"data: {template: llama3}\n", "data.template", "did you mean 'llama-3'?"},
      {"data: {fields: {promt: q}}\n", "a.yaml:1:17, data.fields", "did you mean 'data.fields.prompt'?"},
      {"data: {sequence: {max_tokens: 1}}\n", "data.sequence.max_tokens", "expected: 2 to 16777216 tokens"},
      {"data: {sequence: {overlong: trim}}\n", "data.sequence.overlong", "split, cut, drop, error"},
      {"topology: 4\n", "a.yaml:1:11, topology", "innermost first, such as {pair: 2, node: 4}"},
      {"topology: {}\n", "a.yaml:1:11, topology", "at least one level"},
      {"topology: {pair: 0}\n", "a.yaml:1:18, topology.pair", "expected: >= 1 units"},
      {"topology: {pair: two}\n", "a.yaml:1:18, topology.pair", "found:    'two'"},
      {"topology: {pair:2}\n", "topology.pair:2", "write 'pair: 2', with a space after the colon"},
      {"topology: {self: 2}\n", "a.yaml:1:11, topology", "'self' cannot be the name"},
      {"topology: {pair: {bandwidth: 1Gbit}}\n", "a.yaml:1:18, topology.pair", "a level without a size"},
      {"topology: {pair: {size: 2, bandwith: 1Gbit}}\n", "a.yaml:1:28, topology.pair", "did you mean 'bandwidth'?"},
      {"topology: {pair: {size: 2, bandwidth: 0}}\n", "topology", "a positive rate"},
      {"topology: {pair: {size: 2, latency: 3}, pair: 2}\n", "a.yaml:1:41", "written twice"},
      {"topology: {a: 1000000, b: 1000000}\n", "a.yaml:1:11, topology", "more than 100 million ranks"},
      {"train: {recompute: all}\n", "a.yaml:1:20, train.recompute", "none, block, or {every: 2}"},
      {"train: {recompute: {every: 0}}\n", "train.recompute.every", "expected: >= 1"},
      {"train: {recompute: {each: 2}}\n", "train.recompute", "unknown key 'each'"},
      {"train: {trace: 12:10}\n", "a.yaml:1:16, train.trace", "first:last"},
      {"train: {precision: fp16}\n", "train.precision", "fp32, bf16"},
      {"train: {epochs: 0}\n", "train.epochs", "expected: > 0"},
      {"run: {seed: -1}\n", "run.seed", "expected: >= 0"},
      {"optimizer: {betas: [0.9]}\n", "a.yaml:1:20, optimizer.betas", "a pair such as [0.9, 0.95]"},
      {"optimizer: {lr: 1e-4, schedule: {kind: cosine, min_lr: 1e-3}}\n", "a.yaml:1:56, optimizer.schedule.min_lr",
       "0 to lr"},
      {"train: {steps: 10}\noptimizer: {schedule: {kind: wsd, decay: 20}}\n", "a.yaml:2:42, optimizer.schedule.decay",
       "0 to 10 steps"},
      {"checkpoint: {keep: 0}\n", "checkpoint.keep", "expected: >= 1"},
  };
  for (const Row& row : table) {
    const std::string message = message_of([&] { read(row.text); });
    EXPECT_THAT(message, HasSubstr(row.place)) << row.text;
    EXPECT_THAT(message, HasSubstr(row.what)) << row.text;
  }
}

TEST(RunConfig, VerbsNameWhatTheyMiss) {
  const RunConfig empty = read("");
  const std::vector<std::pair<Needs, std::string>> table{{Needs::Model, "model: {preset: gpt2-10m}"},
                                                         {Needs::TrainData, "data.train"},
                                                         {Needs::EvalData, "data.eval"},
                                                         {Needs::RunFolder, "run.dir"},
                                                         {Needs::Length, "train.epochs"}};
  for (const auto& [need, what] : table) EXPECT_THAT(message_of([&, need = need] { require(empty, {need}); }), HasSubstr(what));
}

TEST(RunConfig, WhatMayChangeOnResume) {
  const Config before = read(kExample).source;
  EXPECT_THAT(check_resume(before, read(kExample, {"train.steps=200", "checkpoint.every=10"}).source),
              ElementsAre("train.steps", "checkpoint.every"));
  // The cure of a numerical fault.
  EXPECT_THAT(check_resume(before, read(kExample, {"optimizer.lr=1e-4", "optimizer.clip=0.5", "optimizer.schedule.min_lr=0"}).source),
              ElementsAre("optimizer.lr", "optimizer.clip", "optimizer.schedule.min_lr"));
  for (const std::string change :
       {"optimizer.name=lion", "optimizer.weight_decay=0", "optimizer.schedule.warmup=5", "run.seed=8", "placement=ddp", "topology={node: 4}", "batch.tokens=2048",
        "data.train=[c.jsonl]", "model.preset=llama-60m", "train.precision=fp32", "data.sequence.max_tokens=128"}) {
    EXPECT_THAT(message_of([&] { check_resume(before, read(kExample, {change}).source); }),
                HasSubstr("may not change when a run is resumed"))
        << change;
  }
}

TEST(RunConfig, TheReferenceIsCurrent) {
  EXPECT_EQ(read_file(std::string(BALLAST_SOURCE_DIR) + "/docs/configuration.md"), run_schema().markdown())
      << "write it anew: build/ballast config schema --markdown > docs/configuration.md";
}

TEST(RunConfig, TheAnnotatedSchemaIsAConfiguration) {
  EXPECT_EQ(parse_run_config(run_schema().text(), "schema").source.fingerprint(), read("").source.fingerprint());
}

}  // namespace
}  // namespace ballast
