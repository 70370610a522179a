// What scripts rely on: of every verb the exit code, where results go, the keys of its JSON and the files it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "tests/apps/tiny_run.h"

namespace ballast::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Interfaces : public TinyRun {};

// Keys as JSON pointers, each with the type of its value: number, integer, string, array or object.
struct Promise {
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> keys;   // none: the output is text
  std::vector<std::string> files;
  std::function<void(const Printed&, const Json&)> more;
};

std::string type_of(const Json& value) {
  if (value.is_number_integer()) return "integer";
  return value.is_number() ? "number" : value.type_name();
}

int64_t stores_in(const std::filesystem::path& folder) {
  int64_t stores = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) stores += entry.path().extension() == ".store";
  return stores;
}

TEST_F(Interfaces, EveryVerbKeepsItsPromises) {
  const std::string run = "runs/a", checkpoint = run + "/checkpoints/step-00000006/";
  const std::vector<Promise> table{
      {{"data", "prepare", "c.yaml", "data.cache=stores"}, {}, {}, [&](const Printed& printed, const Json&) {
         EXPECT_THAT(printed.output, HasSubstr("train: 100 records, "));
         EXPECT_THAT(printed.output, HasSubstr("eval: 20 records, "));
         EXPECT_EQ(stores_in(place_.path() / "stores"), 2);
       }},
      {{"validate", "c.yaml"}, {}, {}, [](const Printed& printed, const Json&) { EXPECT_THAT(printed.output, HasSubstr("\nok\n")); }},
      {{"plan", "c.yaml", "--ranks", "2", "--json"},
       {{"/ranks", "integer"}, {"/levels/0/name", "string"}, {"/levels/0/bytes_per_step", "integer"}, {"/layout_bytes", "integer"}, {"/memory/0/state", "string"},
        {"/memory/0/tier", "string"}, {"/memory/0/bytes_per_rank", "integer"}},
       {}, [](const Printed&, const Json& plan) {
         EXPECT_EQ(plan["ranks"], 2);
         ASSERT_EQ(plan["levels"].size(), 1u);
         EXPECT_GT(plan["levels"][0]["bytes_per_step"], 0);
         std::set<std::string> states;
         for (const Json& row : plan["memory"]) {
           states.insert(row["state"]);
           EXPECT_TRUE(row["tier"].is_string() && row["bytes_per_rank"].is_number_integer()) << row;
         }
         EXPECT_EQ(states, (std::set<std::string>{"weights", "secondary", "gradients", "optimizer", "activations", "buffers"}));
       }},
      {{"train", "c.yaml", "run.dir=" + run, "--trace", "2:3"}, {},
       {run + "/metrics.jsonl", run + "/config.yaml", run + "/environment.json", run + "/log.txt", run + "/trace.json", run + "/timeline.json", run + "/report.html",
        checkpoint + "manifest.json", checkpoint + "model/config.json", checkpoint + "model/model.safetensors"},
       [&](const Printed& printed, const Json&) {
         EXPECT_EQ(printed.output, "");   // progress goes to standard error
         const std::vector<Json> steps = steps_of(place_, run);
         ASSERT_EQ(steps.size(), 6u);
         for (size_t i = 0; i < steps.size(); ++i) {
           EXPECT_EQ(steps[i]["step"], i + 1);
           for (const char* key : {"loss", "lr", "grad_norm", "tokens", "tokens_per_s", "time_s", "memory_bytes"}) EXPECT_TRUE(steps[i][key].is_number()) << key;
           EXPECT_TRUE(steps[i]["bytes"].is_object());
           EXPECT_FALSE(steps[i].contains("eval_loss"));
         }
         int evaluations = 0;
         std::istringstream lines(place_.read(run + "/metrics.jsonl"));
         for (std::string line; std::getline(lines, line);) evaluations += Json::parse(line).contains("eval_loss");
         EXPECT_EQ(evaluations, 1);
         std::set<int64_t> traced;
         const Json trace = Json::parse(place_.read(run + "/trace.json"));
         for (const Json& event : trace["traceEvents"])
           if (event.contains("args") && event["args"].contains("step")) traced.insert(event["args"]["step"].get<int64_t>());
         EXPECT_EQ(traced, (std::set<int64_t>{2, 3}));
       }},
      {{"eval", run, "--json"}, {{"/loss", "number"}, {"/tokens", "integer"}, {"/perplexity", "number"}, {"/tokens_per_s", "number"}}, {}, [](const Printed&, const Json& eval) {
         EXPECT_NEAR(eval["perplexity"].get<double>(), std::exp(eval["loss"].get<double>()), 1e-9 * eval["perplexity"].get<double>());
       }},
      {{"generate", run, "--prompt", "Line 7", "--tokens", "5", "--temperature", "0"}, {}, {}, [](const Printed& printed, const Json&) {
         EXPECT_TRUE(printed.output.starts_with("Line 7")) << printed.output;
         EXPECT_TRUE(printed.output.ends_with("\n"));
       }},
      {{"generate", run, "--prompt", "Line 7", "--tokens", "5", "--json"}, {{"/prompt", "string"}, {"/text", "string"}, {"/ids", "array"}, {"/stopped_by", "string"}}, {}, {}},
      {{"report", run, "--output", "page.html"}, {}, {"page.html"}, [&](const Printed& printed, const Json&) {
         EXPECT_EQ(printed.output, "page.html\n");
         EXPECT_THAT(place_.read("page.html"), HasSubstr("</html>"));
       }},
      {{"inspect", run, "--json"}, {{"/metrics/steps", "integer"}, {"/checkpoints", "array"}, {"/newest_valid", "string"}, {"/best", "string"}, {"/damaged", "array"}}, {},
       [](const Printed&, const Json& seen) { EXPECT_EQ(seen["checkpoints"], (Json{3, 6})); }},
      {{"inspect", checkpoint + "model/model.safetensors", "--json"}, {{"/tensors/transformer.wte.weight/shape", "array"}, {"/bytes", "integer"}}, {}, {}},
      {{"export", run, "--to", "exported"}, {}, {"exported/config.json", "exported/model.safetensors"}, {}},
      {{"bench", "train", "--json", "model.preset=gpt2-tiny", "batch=1", "seq=16", "precision=fp32", "threads=1", "steps=2", "ranks=2", "placement=zero1"},
       {{"/tokens_per_s", "number"}, {"/step_s", "number"}, {"/loss", "number"}, {"/peak_rss_bytes", "integer"}, {"/mfu", "number"}, {"/gemm_peak_flops", "number"}, {"/cpu_flags", "array"}},
       {}, [](const Printed&, const Json& bench) {
         EXPECT_GT(bench["peak_rss_bytes"], 1 << 20);
         EXPECT_NEAR(bench["tokens_per_s"].get<double>() * bench["step_s"].get<double>(), 32, 1e-6);   // two ranks of one sequence
       }},
      {{"config", "schema", "--json"}, {{"/keys/0/path", "string"}, {"/keys/0/type", "string"}, {"/keys/0/on_resume", "boolean"}}, {}, {}},
      {{"--version"}, {}, {}, [](const Printed& printed, const Json&) { EXPECT_THAT(printed.output, HasSubstr("libtorch 2.")); }},
  };
  for (const Promise& promise : table) {
    std::string command;
    for (const std::string& argument : promise.arguments) command += argument + " ";
    SCOPED_TRACE(command);
    const Printed printed = run_program(promise.arguments, place_.path());
    ASSERT_EQ(printed.code, 0) << printed.errors;
    Json json;
    if (!promise.keys.empty()) json = Json::parse(printed.output, nullptr, false);
    for (const auto& [key, type] : promise.keys) {
      const Json::json_pointer place(key);
      ASSERT_TRUE(json.contains(place)) << key << " in " << json.dump(2);
      EXPECT_EQ(type_of(json[place]), type) << key;
    }
    for (const std::string& file : promise.files) EXPECT_GT(place_.read(file).size(), 0u) << file;
    if (promise.more) promise.more(printed, json);
  }
}

// Codes 2 and 3 have a table in training_test.cpp, as have 5, 6 and 130 tests of their own.
TEST_F(Interfaces, WhatNeedsTooMuchMemoryEndsWithFourBeforeItIsTaken) {
  const std::vector<std::string> huge{"model.vocab_size=1000000000", "batch.micro_tokens=65536"};
  const Printed printed = train("runs/a", huge);
  EXPECT_EQ(printed.code, 4) << printed.errors;
  EXPECT_THAT(printed.errors, HasSubstr("out of memory: "));
  EXPECT_FALSE(std::filesystem::exists(place_.path() / "runs/a"));
  EXPECT_EQ(run_program({"plan", "c.yaml", "--limit", "memory=1MiB"}, place_.path()).code, 4);
}

TEST_F(Interfaces, ANumericalFaultEndsWithSevenAndItsCureWorks) {
  ASSERT_EQ(train("runs/a", {"train.steps=3"}).code, 0);
  const std::vector<double> before = losses_of(place_, "runs/a");
  const Printed fault = train("runs/a", {"--resume", "optimizer.lr=1e30", "optimizer.clip=0"});
  EXPECT_EQ(fault.code, 7) << fault.errors;
  EXPECT_THAT(fault.errors, HasSubstr("numerical fault: "));
  EXPECT_THAT(fault.errors, HasSubstr("lower optimizer.lr, set optimizer.clip"));
  EXPECT_THAT(fault.errors, HasSubstr("resumed with another optimizer.lr: 1e+30 instead of 0.001\n"));
  const Printed cured = train("runs/a", {"--resume", "optimizer.lr=5e-4", "optimizer.clip=0.5", "optimizer.schedule.min_lr=5e-5"});
  ASSERT_EQ(cured.code, 0) << cured.errors;
  for (const char* said : {"resumed with another optimizer.lr: 0.0005 instead of 1e+30\n", "resumed with another optimizer.clip: 0.5 instead of 0\n",
                           "resumed with another optimizer.schedule.min_lr: 5e-05 instead of 0.0001\n"})
    EXPECT_THAT(cured.errors, HasSubstr(said));
  const std::vector<Json> steps = steps_of(place_, "runs/a");
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(steps[i]["loss"], before[i]) << i;   // what was done stays
  EXPECT_DOUBLE_EQ(steps[5]["lr"], 5e-5);                                                    // the new schedule's end
  for (const Json& step : steps) EXPECT_TRUE(std::isfinite(step["loss"].get<double>()));
}

TEST_F(Interfaces, LogEveryCountsTheLinesOfAPipe) {
  const auto lines = [&](const std::string& run, const std::string& every) {
    const Printed printed = train(run, {"train.log_every=" + every, "train.steps=7"});
    EXPECT_EQ(printed.code, 0) << printed.errors;
    std::vector<int> steps;
    std::istringstream text(printed.errors);
    for (std::string line; std::getline(text, line);)
      if (line.starts_with("step ")) steps.push_back(std::stoi(line.substr(5)));
    return steps;
  };
  EXPECT_EQ(lines("runs/a", "3"), (std::vector<int>{1, 3, 6, 7}));
  EXPECT_EQ(lines("runs/b", "100"), (std::vector<int>{1, 7}));
}

TEST_F(Interfaces, TheFinalEvaluationIsWholeAndTheBestIsChosenOnEqualTokens) {
  const auto evaluations = [&](const std::string& run, const std::string& steps) {
    const Printed printed = train(run, {"train.eval_every=3", "train.eval_batches=1", "optimizer.schedule.kind=constant", "train.steps=" + steps});
    EXPECT_EQ(printed.code, 0) << printed.errors;
    std::vector<Json> found;
    std::istringstream text(place_.read(run + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);)
      if (const Json json = Json::parse(line); json.contains("eval_loss")) found.push_back(json);
    return found;
  };
  const std::vector<Json> six = evaluations("runs/six", "6"), seven = evaluations("runs/seven", "7");
  ASSERT_EQ(six.size(), 2u);
  ASSERT_EQ(seven.size(), 3u);
  EXPECT_EQ(seven[0]["trained_tokens"], seven[1]["trained_tokens"]);
  EXPECT_LT(seven[1]["trained_tokens"], six[1]["trained_tokens"]);   // step 6 is the last of one run only
  const Printed whole = run_program({"eval", "runs/six", "--json"}, place_.path());
  ASSERT_EQ(whole.code, 0) << whole.errors;
  const Json json = Json::parse(whole.output);
  EXPECT_EQ(six[1]["trained_tokens"], json["tokens"]);
  EXPECT_NEAR(six[1]["eval_loss"].get<double>(), json["loss"].get<double>(), 1e-6 * json["loss"].get<double>());
  const Json state = Json::parse(run_program({"inspect", "runs/six/checkpoints/step-00000006", "--json"}, place_.path()).output);
  EXPECT_EQ(state["metrics"]["best_eval_loss"], seven[1]["eval_loss"]);
}

TEST_F(Interfaces, ALongerRunThanAskedForIsSaidAsItIs) {
  ASSERT_EQ(train("runs/a").code, 0);
  const Printed printed = train("runs/a", {"--resume", "train.steps=3"});
  EXPECT_EQ(printed.code, 0) << printed.errors;
  EXPECT_THAT(printed.errors, HasSubstr("nothing is left to do: 6 steps are done, 3 asked for"));
}

}  // namespace
}  // namespace ballast::testing
