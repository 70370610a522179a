// The strict reader on a small schema: values, origins, overrides, and the key and line of everything that is wrong.
#include "ballast/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ballast/base/files.h"

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const ConfigSchema& schema() {
  static const ConfigSchema instance(
      {{"optimizer", "How weights are updated."}, {"run", "The run."}},
      {
          {"run.dir", ConfigType::Text, "", "", {}, "Folder.", true},
          {"run.steps", ConfigType::Count, "", "steps", {}, "Length.", true, "length", 1},
          {"run.epochs", ConfigType::Number, "", "", {}, "Length.", true, "length"},
          {"run.memory", ConfigType::Bytes, "1GiB", "bytes", {}, "Limit.", true, "", 1},
          {"run.link", ConfigType::Rate, "1Gbit", "", {}, "Rate."},
          {"run.wait", ConfigType::Time, "3ms", "", {}, "Time.", true, "", 0, {}, true},
          {"run.best", ConfigType::Flag, "true", "", {}, "Flag."},
          {"run.files", ConfigType::Texts, "[]", "", {}, "Files."},
          {"optimizer.name", ConfigType::Choice, "adamw", "", {"adamw", "sgd", "lion"}, "Rule."},
          {"optimizer.lr", ConfigType::Number, "1e-3", "", {}, "Rate.", false, "", 0, {}, true},
          {"optimizer.betas", ConfigType::Numbers, "[0.9, 0.95]", "", {}, "Decays.", false, "", 0, 1},
          {"optimizer.schedule.kind", ConfigType::Text, "cosine", "", {}, "Course."},
          {"optimizer.schedule.warmup", ConfigType::Count, "0", "steps", {}, "Steps.", false, "", 0},
          {"topology", ConfigType::Tree, "", "", {}, "Levels."},
          {"placement", ConfigType::Tree, "ddp", "", {}, "Table | preset."},
      });
  return instance;
}

Config read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return Config::parse(schema(), text, "a.yaml", overrides);
}

std::string message_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    read(text, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Config, DefaultsHaveTheirUnits) {
  const Config config = read("");
  EXPECT_EQ(config.count("run.memory"), 1 << 30);
  EXPECT_EQ(config.number("run.link"), 125e6);
  EXPECT_EQ(config.number("run.wait"), 0.003);
  EXPECT_TRUE(config.flag("run.best"));
  EXPECT_TRUE(config.texts("run.files").empty());
  EXPECT_EQ(config.text("optimizer.name"), "adamw");
  EXPECT_EQ(config.number("optimizer.lr"), 1e-3);
  EXPECT_THAT(config.numbers("optimizer.betas"), ElementsAre(0.9, 0.95));
  EXPECT_FALSE(config.has("run.dir"));
  EXPECT_FALSE(config.has("topology"));
  EXPECT_EQ(config.maybe_count("run.steps"), std::nullopt);
  EXPECT_EQ(config.origin("optimizer.lr").text, "default");
  EXPECT_EQ(read("optimizer:\nrun:\n").fingerprint(), config.fingerprint());
}

TEST(Config, LayersKeepTheirOrigins) {
  const Config config = read("optimizer:\n  lr: 6e-4\n  schedule: {warmup: 2k}\nrun: {memory: 4GiB, files: a.jsonl}\n",
                             {"optimizer.lr=3e-4", "run.files=[x, 'y z']", "run.best=false", "optimizer.lr=2e-4"});
  EXPECT_EQ(config.number("optimizer.lr"), 2e-4);
  EXPECT_EQ(config.origin("optimizer.lr").kind, Origin::Kind::CommandLine);
  EXPECT_EQ(config.count("optimizer.schedule.warmup"), 2000);
  EXPECT_EQ(config.origin("optimizer.schedule.warmup").text, "a.yaml:3");
  EXPECT_EQ(config.place("optimizer.schedule.warmup"), "a.yaml:3:22, optimizer.schedule.warmup");
  EXPECT_EQ(config.count("run.memory"), int64_t{4} << 30);
  EXPECT_THAT(config.texts("run.files"), ElementsAre("x", "y z"));
  EXPECT_FALSE(config.flag("run.best"));
}

TEST(Config, TreesKeepTheirOrderAndTakeOverridesInside) {
  const Config config =
      read("topology: {zeta: 2, alpha: 4}\n", {"topology.alpha=8", "topology.outer={size: 3}", "placement=hsdp(pair)"});
  EXPECT_EQ(flow_text(config.node("topology")), "{zeta: 2, alpha: 8, outer: {size: 3}}");
  EXPECT_EQ(config.origin("topology").text, "command line");
  EXPECT_EQ(config.text("placement"), "hsdp(pair)");
  EXPECT_EQ(flow_text(read("", {"topology.pair=2", "topology.node.size=3"}).node("topology")),
            "{pair: 2, node: {size: 3}}");
  EXPECT_THAT(message_of("", {"placement.weights.shard=pair"}), HasSubstr("'placement' is 'ddp' here, not a map"));
}

TEST(Config, SectionsCanBeOverriddenAsMaps) {
  const Config config = read("optimizer: {lr: 6e-4}\n", {"optimizer={name: lion, schedule: {kind: linear}}"});
  EXPECT_EQ(config.text("optimizer.name"), "lion");
  EXPECT_EQ(config.text("optimizer.schedule.kind"), "linear");
  EXPECT_EQ(config.number("optimizer.lr"), 6e-4);
}

TEST(Config, RivalsExcludeEachOtherWithinALayerAndDisplaceAcross) {
  const std::string message = message_of("run:\n  steps: 5\n  epochs: 2\n");
  EXPECT_THAT(message, HasSubstr("'run.steps' and 'run.epochs' exclude each other"));
  EXPECT_THAT(message, HasSubstr("a.yaml:3:3"));
  EXPECT_THAT(message, HasSubstr("the other is at a.yaml:2:10"));
  const Config config = read("run: {steps: 5}\n", {"run.epochs=2"});
  EXPECT_FALSE(config.has("run.steps"));
  EXPECT_EQ(config.number("run.epochs"), 2);
}

TEST(Config, NullUnsetsWhatHasNoDefault) {
  EXPECT_FALSE(read("run: {dir: a}\n", {"run.dir=null"}).has("run.dir"));
  EXPECT_THAT(message_of("optimizer: {lr: }\n"), HasSubstr("remove the key to get its default, 1e-3"));
  EXPECT_THAT(message_of("", {"run.dir="}), HasSubstr("write run.dir=null to unset it"));
}

TEST(Config, WrongConfigsNameKeyAndPlace) {
  struct Row {
    std::string text, place, what;
  };
  const std::vector<Row> table{
      {"run: {dirr: a}\n", "a.yaml:1:7, run", "did you mean 'run.dir'?"},
      {"lr: 3\n", "a.yaml:1:1", "did you mean 'optimizer.lr'?"},
      {"optimiser: {lr: 3}\n", "a.yaml:1:1", "did you mean 'optimizer'?"},
      {"run:\n  zzzzzzzzz: 1\n", "a.yaml:2:3, run", "'run' holds dir, steps"},
      {"run.dir: a\n", "a.yaml:1:1", "unknown key 'run.dir'"},
      {"optimizer: {<<: {lr: 1}}\n", "a.yaml:1:13", "unknown key '<<'"},
      {"optimizer: adamw\n", "a.yaml:1:12, optimizer", "is a section"},
      {"- a\n", "a.yaml:1:1", "a map of sections"},
      {"optimizer:\n  lr: fast\n", "a.yaml:2:7, optimizer.lr", "found:    'fast'"},
      {"optimizer:\n  lr: '3'\n", "a.yaml:2:7, optimizer.lr", "found:    '3' in quotes"},
      {"optimizer: {lr: [1]}\n", "a.yaml:1:17, optimizer.lr", "a list of 1"},
      {"optimizer: {lr: 0}\n", "a.yaml:1:17, optimizer.lr", "expected: > 0"},
      {"optimizer: {lr: nan}\n", "a.yaml:1:17, optimizer.lr", "not a number"},
      {"optimizer: {betas: [0.9, 1.5]}\n", "a.yaml:1:20, optimizer.betas", "expected: 0 to 1"},
      {"optimizer: {betas: 0.9}\n", "optimizer.betas", "list of numbers"},
      {"optimizer: {betas: [0.9, x]}\n", "optimizer.betas", "found:    'x'"},
      {"optimizer: {name: adam}\n", "a.yaml:1:19, optimizer.name", "did you mean 'adamw'?"},
      {"optimizer: {schedule: {kind: [a]}}\n", "optimizer.schedule.kind", "not a text"},
      {"optimizer: {schedule: {warmup: -1}}\n", "optimizer.schedule.warmup", "expected: >= 0 steps"},
      {"run: {steps: 1.5}\n", "a.yaml:1:14, run.steps", "whole number"},
      {"run: {steps: 0}\n", "run.steps", "expected: >= 1 steps"},
      {"run: {memory: 4G}\n", "a.yaml:1:15, run.memory", "'GiB' a power of 1024"},
      {"run: {link: 200MB}\n", "run.link", "add '/s'"},
      {"run: {wait: 3m}\n", "run.wait", "'min' for minutes"},
      {"run: {wait: 0ms}\n", "run.wait", "expected: > 0"},
      {"run: {best: yes}\n", "a.yaml:1:13, run.best", "expected: true or false"},
      {"run: {best: 'true'}\n", "run.best", "in quotes"},
      {"run: {dir: ''}\n", "run.dir", "an empty text"},
      {"run: {dir: {a: b}}\n", "run.dir", "a map with keys a"},
      {"run: {files: [a, [b]]}\n", "run.files", "a list of 1"},
      {"run: {files: [a, ~]}\n", "run.files", "found:    nothing"},
  };
  for (const Row& row : table) {
    const std::string message = message_of(row.text);
    EXPECT_THAT(message, HasSubstr(row.place)) << row.text;
    EXPECT_THAT(message, HasSubstr(row.what)) << row.text;
  }
}

TEST(Config, WrongOverridesNameTheArgument) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"optimizer.lr", "expected: key=value"},
      {"=3", "expected: key=value"},
      {"optimizer.lr=fast", "where:    command line 'optimizer.lr=fast', optimizer.lr"},
      {"optimizer.lrr=3", "did you mean 'optimizer.lr'?"},
      {"lr=3", "did you mean 'optimizer.lr'?"},
      {"optimiser.lr=3", "did you mean 'optimizer.lr'?"},
      {"optimzer.lr=3", "unknown key 'optimzer.lr'"},
      {".=3", "unknown key '.'"},
      {"run.dir.deep=3", "unknown key 'run.dir.deep'"},
      {"optimizer=3", "is a section"},
      {"optimizer=null", "is a section"},
      {"run.files=[a", "not valid YAML"},
      {"topology={a: 1, a: 2}", "written twice"},
      {"run.dir=\x1b", "control character"},
      {"optimizer.\x1b=3", "\\x1b"},
  };
  for (const auto& [argument, what] : table) {
    const std::string message = message_of("", {argument});
    EXPECT_THAT(message, HasSubstr(what)) << argument;
    EXPECT_THAT(message, HasSubstr("command line")) << argument;
  }
}

TEST(Config, TheResolvedTextReadsBackAndNamesOrigins) {
  const Config config =
      read("topology: {pair: 2, node: {size: 4, latency: 3ms}}\nrun: {dir: 'a b: #c', files: [x]}\n",
           {"optimizer.schedule.warmup=2k", "placement={weights: {shard: pair}}", "run.files=[x, 'null', '1']"});
  const std::string text = config.write();
  EXPECT_THAT(text, HasSubstr("dir: \"a b: #c\"  # a.yaml:2\n"));
  EXPECT_THAT(text, HasSubstr("    warmup: 2000  # command line\n"));
  EXPECT_THAT(text, HasSubstr("  lr: 0.001  # default\n"));
  EXPECT_THAT(text, HasSubstr("topology: {pair: 2, node: {size: 4, latency: 3ms}}  # a.yaml:1\n"));
  EXPECT_EQ(text.find("steps"), std::string::npos);
  const Config again = Config::parse(schema(), text, "config.yaml");
  for (const ConfigKey& key : schema().keys())
    EXPECT_EQ(again.canonical(key.path), config.canonical(key.path)) << key.path;
  EXPECT_EQ(again.fingerprint(), config.fingerprint());
}

TEST(Config, FingerprintsFollowValuesNotTheirWriting) {
  EXPECT_EQ(read("run: {steps: 2k}\n").fingerprint(), read("run: {steps: 2000}\n").fingerprint());
  EXPECT_NE(read("run: {steps: 2k}\n").fingerprint(), read("run: {steps: 2001}\n").fingerprint());
}

TEST(Config, OnlySomeKeysChangeOnResume) {
  const Config before = read("run: {steps: 100, memory: 1024MiB}\n");
  EXPECT_TRUE(check_resume(before, read("run: {steps: 1e2, memory: 1GiB}\n")).empty());
  EXPECT_THAT(check_resume(before, read("run: {epochs: 3}\n")), ElementsAre("run.steps", "run.epochs"));
  EXPECT_EQ(read("run: {epochs: 3}\n").resume_fingerprint(), before.resume_fingerprint());
  EXPECT_NE(read("run: {steps: 100}\n", {"optimizer.lr=3e-4"}).resume_fingerprint(), before.resume_fingerprint());
  try {
    check_resume(before, read("run: {steps: 100}\n", {"optimizer.lr=3e-4"}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_THAT(error.what(), HasSubstr("'optimizer.lr' may not change"));
    EXPECT_THAT(error.what(), HasSubstr("found:    0.0003"));
    EXPECT_THAT(error.what(), HasSubstr("expected: 0.001, as in the run"));
  }
}

TEST(Config, LoadsFilesAndNamesThoseThatAreMissing) {
  const std::string path = testing::TempDir() + "config_test.yaml";
  write_aside(path, "optimizer: {lr: 5e-4}\n");
  EXPECT_EQ(Config::load(schema(), path).number("optimizer.lr"), 5e-4);
  std::filesystem::remove(path);
  try {
    Config::load(schema(), path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_THAT(error.what(), HasSubstr("No such file or directory (errno 2)"));
  }
}

TEST(Schema, FacesListEveryKey) {
  const auto json = nlohmann::json::parse(schema().json());
  ASSERT_EQ(json["keys"].size(), schema().keys().size());
  EXPECT_EQ(json["keys"][1]["path"], "run.steps");
  EXPECT_TRUE(json["keys"][1]["default"].is_null());
  EXPECT_EQ(json["keys"][3]["default"], "1GiB");
  EXPECT_EQ(json["keys"][8]["allowed"][2], "lion");
  for (const ConfigKey& key : schema().keys()) EXPECT_THAT(schema().markdown(), HasSubstr("| `" + key.path + "` |"));
  EXPECT_THAT(schema().markdown(), HasSubstr("Table \\| preset."));
  // The annotated text is itself a configuration of all defaults.
  EXPECT_EQ(Config::parse(schema(), schema().text(), "schema").fingerprint(), read("").fingerprint());
}

}  // namespace
}  // namespace ballast
