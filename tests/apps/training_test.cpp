// Whole runs of the binary over real processes: strategies, transports and launchers agree, resume is bit-exact, a lost rank and a signal end a run as documented.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/tiny_run.h"

namespace ballast::testing {
namespace {

using ::testing::HasSubstr;

class Training : public TinyRun {};

TEST_F(Training, ProcessesEqualOneProcess) {
  ASSERT_EQ(train("runs/one").code, 0);
  const std::vector<double> want = losses_of(place_, "runs/one");
  ASSERT_EQ(want.size(), 6u);
  const std::vector<std::vector<std::string>> cases{{"--ranks", "2", "placement=ddp"},
                                                    {"--ranks", "3", "placement=zero3"},
                                                    {"topology={pair: 2, node: 2}", "placement=hsdp(pair)"},
                                                    {"topology={pair: 2, node: 2}", "placement=zero2", "train.recompute=block"},
                                                    {"--ranks", "4", "placement=zero1", "data.sequence.layout=padded"},
                                                    {"--ranks", "3", "placement=zero3", "data.sequence.layout=balanced"},
                                                    {"topology={pair: 2, node: 2}", "placement=hsdp(pair)", "data.sequence.layout=context-parallel", "data.sequence.team=2"},
                                                    {"--ranks", "2", "placement=zero1", "data.sequence.layout=balanced", "data.sequence.remap=always", "batch.micro_tokens=512"},
                                                    // Ranks of one host talk through shared memory unless told otherwise.
                                                    {"topology={pair: 2, node: 2}", "placement=hsdp(pair)", "comm.backend=gloo"},
                                                    {"--ranks", "3", "placement=zero3", "data.sequence.layout=balanced", "comm.backend=gloo"}};
  int number = 0;
  for (std::vector<std::string> arguments : cases) {
    const std::string run = "runs/case" + std::to_string(number++);
    const Printed printed = train(run, arguments);
    ASSERT_EQ(printed.code, 0) << printed.errors;
    EXPECT_THAT(printed.errors, HasSubstr(arguments.back() == "comm.backend=gloo" ? "talks through gloo" : "talks through shm"));
    const std::vector<double> got = losses_of(place_, run);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << arguments.back() << ", step " << i + 1;
    // The bytes that were counted are those of the plan, step by step.
    for (const int step : {1, 6}) {
      std::vector<std::string> plan{"plan", "c.yaml", "--json", "--step", std::to_string(step)};
      for (const std::string& argument : arguments) plan.push_back(argument);
      const Printed planned = run_program(plan, place_.path());
      ASSERT_EQ(planned.code, 0) << planned.errors;
      EXPECT_EQ(nlohmann::json::parse(planned.output)["layout_bytes"], steps_of(place_, run)[static_cast<size_t>(step - 1)]["layout_bytes"]);
      for (const auto& level : nlohmann::json::parse(planned.output)["levels"]) {
        EXPECT_EQ(level["bytes_per_step"], steps_of(place_, run)[static_cast<size_t>(step - 1)]["bytes"][level["name"].get<std::string>()]);
      }
    }
  }
}

TEST_F(Training, ALayoutIsShownInWordsJsonAndAPicture) {
  const std::vector<std::string> plan{"plan", "c.yaml", "--step", "2", "--show", "layout", "data.sequence.layout=balanced", "topology={pair: 2, node: 2}"};
  std::vector<std::string> json = plan;
  json.insert(json.end(), {"--json", "--svg", "layout.svg"});
  const Printed printed = run_program(json, place_.path());
  ASSERT_EQ(printed.code, 0) << printed.errors;
  const auto layout = nlohmann::json::parse(printed.output);
  int64_t tokens = 0;
  for (const auto& batch : layout["micro_batches"]) {
    EXPECT_EQ(batch["ranks"].size(), 4u);
    for (const auto& rank : batch["ranks"]) for (const auto& piece : rank["pieces"]) tokens += piece["length"].get<int64_t>();
  }
  EXPECT_EQ(tokens, layout["tokens"].get<int64_t>());
  EXPECT_GE(layout["step_s"].get<double>(), layout["lower_bound_s"].get<double>());
  EXPECT_EQ(place_.read("layout.svg").substr(0, 4), "<svg");
  const Printed words = run_program(plan, place_.path());
  EXPECT_EQ(words.code, 0);
  EXPECT_THAT(words.output, ::testing::AllOf(HasSubstr("micro-batch 1\n"), ::testing::Not(HasSubstr("micro-batch 0"))));   // as in the picture
  const Printed zeroth = run_program({"plan", "c.yaml", "--step", "0"}, place_.path());
  EXPECT_EQ(zeroth.code, 2);
  EXPECT_THAT(zeroth.errors, HasSubstr("steps count from 1"));
  EXPECT_THAT(zeroth.errors, HasSubstr("1 or more"));
}

TEST_F(Training, BenchesOfLayoutsTakeListsOfLengthsAndRefuseOthers) {
  place_.write("lengths.txt", "5\n3\n40\n1\n7\n22\n9\n31\n");
  const Printed table = run_program({"bench", "layout", "--lengths", "lengths.txt", "--ranks", "4", "micro_tokens=64", "--json"}, place_.path());
  ASSERT_EQ(table.code, 0) << table.errors;
  const Printed steps = run_program({"bench", "sequences", "--lengths", "lengths.txt", "layouts=packed,balanced,context-parallel", "model.preset=gpt2-tiny", "data.sequence.max_tokens=32",
                                     "group=4", "steps=2", "warmup=0", "turns=1", "--ranks", "2", "--json"}, place_.path());
  ASSERT_EQ(steps.code, 0) << steps.errors;
  const auto layouts = nlohmann::json::parse(steps.output)["layouts"];
  ASSERT_EQ(layouts.size(), 3u);
  for (const auto& one : layouts) EXPECT_NEAR(one["loss"].get<double>(), layouts[0]["loss"].get<double>(), 1e-5) << one;   // whatever the layout, the same tokens
  EXPECT_GT(layouts[2]["layout_bytes_per_step"].get<double>(), 0);
  for (const char* line : {"0", "-3", "x", "12 5", "1.5"}) {
    place_.write("bad.txt", std::string("4\n") + line + "\n");
    const Printed refused = run_program({"bench", "layout", "--lengths", "bad.txt", "--ranks", "2"}, place_.path());
    EXPECT_EQ(refused.code, 3) << line;
    EXPECT_THAT(refused.errors, HasSubstr("bad.txt:2")) << line;
  }
}

TEST_F(Training, RanksOfMpirunEqualThoseOfTheOwnLauncher) {
  ASSERT_EQ(train("runs/own", {"--ranks", "2", "placement=zero3", "train.threads=1"}).code, 0);
  const Printed printed = run_command({"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpirun", "--oversubscribe", "-n", "2", program_path(), "train", "c.yaml",
                                       "run.dir=runs/mpi", "placement=zero3", "train.threads=1"}, place_.path());
  ASSERT_EQ(printed.code, 0) << printed.errors;
  EXPECT_THAT(printed.errors, HasSubstr("rank 0 of 2, started by Open MPI"));
  ASSERT_EQ(losses_of(place_, "runs/own").size(), 6u);
  EXPECT_EQ(losses_of(place_, "runs/mpi"), losses_of(place_, "runs/own"));
}

TEST_F(Training, TwoRunsAreBitIdentical) {
  ASSERT_EQ(train("runs/a", {"--ranks", "2", "placement=zero3"}).code, 0);
  ASSERT_EQ(train("runs/b", {"--ranks", "2", "placement=zero3"}).code, 0);
  EXPECT_EQ(losses_of(place_, "runs/a"), losses_of(place_, "runs/b"));
  EXPECT_EQ(place_.read("runs/a/checkpoints/step-00000006/model/model.safetensors"), place_.read("runs/b/checkpoints/step-00000006/model/model.safetensors"));
}

TEST_F(Training, ResumeIsBitExact) {
  const std::string tree = "topology={pair: 2, node: 2}";
  const std::vector<std::vector<std::string>> cases{
      {"--ranks", "2", "placement=zero3"},
      {"--ranks", "2", "placement=ddp"},
      // Lossy wires, and states that no checkpoint holds: secondary weights and what feedback has kept.
      {tree, "train.precision=bf16",
       "placement={weights: pair, secondary: {shard: node, storage: {codec: int8, block: 40, symmetric: false}}, gradients: pair, optimizer: world, "
       "wire: {forward: int8, reduce: {codec: int4, block: 24, rounding: stochastic, feedback: true}, reduce_on: {codec: int4, feedback: {beta: 0.5, reset: 2}}, refresh: {codec: int8, rounding: stochastic}}}"},
      {tree, "placement=topo(pair, node, refresh=int8, reduce_on=int4)"}};
  for (size_t n = 0; n < cases.size(); ++n) {
    const std::string whole = "runs/whole" + std::to_string(n), parts = "runs/parts" + std::to_string(n);
    SCOPED_TRACE(cases[n].back());
    const Printed first = train(whole, cases[n]);
    ASSERT_EQ(first.code, 0) << first.errors;
    ASSERT_EQ(train(parts, cases[n]).code, 0);
    // As if it had ended after step 3: later checkpoints are gone.
    for (const auto& entry : std::filesystem::directory_iterator(place_.path() / parts / "checkpoints")) {
      if (entry.path().filename() != "step-00000003") std::filesystem::remove_all(entry.path());
    }
    std::vector<std::string> again = cases[n];
    again.emplace_back("--resume");
    const Printed resumed = train(parts, again);
    ASSERT_EQ(resumed.code, 0) << resumed.errors;
    EXPECT_THAT(resumed.errors, HasSubstr("step 3"));
    EXPECT_EQ(losses_of(place_, whole), losses_of(place_, parts));
    EXPECT_EQ(place_.read(whole + "/checkpoints/step-00000006/model/model.safetensors"), place_.read(parts + "/checkpoints/step-00000006/model/model.safetensors"));
  }
}

TEST_F(Training, ADamagedCheckpointIsNotUsedAndSaid) {
  ASSERT_EQ(train("runs/a").code, 0);
  std::string weights = place_.read("runs/a/checkpoints/step-00000006/model/model.safetensors");
  weights[weights.size() / 2] = static_cast<char>(weights[weights.size() / 2] ^ 1);
  std::filesystem::remove_all(place_.path() / "runs/a/checkpoints/best-step-00000006");
  std::filesystem::remove(place_.path() / "runs/a/checkpoints/step-00000006/model/model.safetensors");
  place_.write("runs/a/checkpoints/step-00000006/model/model.safetensors", weights);
  const Printed resumed = train("runs/a", {"--resume", "train.steps=7"});
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr("step-00000006"));
  EXPECT_THAT(resumed.errors, HasSubstr("resumed from runs/a/checkpoints/step-00000003"));
}

// A run that ends before its first checkpoint: what starts it again with --resume, as torchrun's restarts do, gets the run that it would have been.
TEST_F(Training, ARunWithoutACheckpointStartsAgainByResume) {
  ASSERT_EQ(train("runs/whole", {"--ranks", "2"}).code, 0);
  const Printed fault = train("runs/a", {"--ranks", "2", "checkpoint.every=0", "optimizer.clip=0", "optimizer.lr=1e30"});
  EXPECT_EQ(fault.code, 7) << fault.errors;
  EXPECT_GT(steps_of(place_, "runs/a").size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(place_.path() / "runs/a/checkpoints/step-00000001"));
  const Printed refused = train("runs/a", {"--ranks", "2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("a run that ended before its first checkpoint"));
  EXPECT_THAT(refused.errors, HasSubstr("or start it again from step 0 by --resume"));
  const Printed resumed = train("runs/a", {"--ranks", "2", "--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  const size_t said = resumed.errors.find("--resume: runs/a has no checkpoint yet; the run starts again from step 0");
  EXPECT_NE(said, std::string::npos) << resumed.errors;
  EXPECT_EQ(resumed.errors.find("has no checkpoint yet", said + 40), std::string::npos) << resumed.errors;
  EXPECT_EQ(losses_of(place_, "runs/a"), losses_of(place_, "runs/whole"));
  EXPECT_EQ(place_.read("runs/a/checkpoints/step-00000006/model/model.safetensors"), place_.read("runs/whole/checkpoints/step-00000006/model/model.safetensors"));
  // Killed before its metrics: only the configuration is there.
  std::filesystem::create_directories(place_.path() / "runs/b");
  place_.write("runs/b/config.yaml", place_.read("runs/whole/config.yaml"));
  EXPECT_EQ(train("runs/b", {"--ranks", "2"}).code, 2);
  const Printed early = train("runs/b", {"--ranks", "2", "--resume"});
  ASSERT_EQ(early.code, 0) << early.errors;
  EXPECT_EQ(losses_of(place_, "runs/b"), losses_of(place_, "runs/whole"));
  // Without its configuration nothing is known of it.
  std::filesystem::create_directories(place_.path() / "runs/c");
  place_.write("runs/c/metrics.jsonl", "");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, std::vector<std::string>{"--resume"}}) {
    const Printed lost = train("runs/c", more);
    EXPECT_EQ(lost.code, 2);
    EXPECT_THAT(lost.errors, HasSubstr("remove this")) << lost.errors;
  }
}

TEST_F(Training, WhatAllRanksRefuseIsSaidOnce) {
  ASSERT_EQ(train("runs/a", {"--ranks", "2"}).code, 0);
  for (const auto& folder : std::filesystem::directory_iterator(place_.path() / "runs/a/checkpoints"))
    place_.write(std::filesystem::relative(folder.path() / "manifest.json", place_.path()).string(), "{}");
  const Printed resumed = train("runs/a", {"--ranks", "2", "--resume", "train.steps=7"});
  EXPECT_EQ(resumed.code, 6) << resumed.errors;
  const auto count = [&](const std::string& text) {
    int times = 0;
    for (size_t at = resumed.errors.find(text); at != std::string::npos; at = resumed.errors.find(text, at + 1)) ++times;
    return times;
  };
  EXPECT_EQ(count("the run has no valid checkpoint"), 1) << resumed.errors;
  EXPECT_EQ(count("checkpoints/step-00000003 is not used"), 1) << resumed.errors;
  EXPECT_EQ(count("] [rank"), 0) << resumed.errors;
}

TEST_F(Training, WhatRanksWouldRefuseIsSaidBeforeTheyStart) {
  place_.write("two.jsonl", R"({"text": "a short line"})" "\n" R"({"text": "another"})" "\n");
  const std::vector<std::pair<std::string, int>> rows{{"data.tokenizer=nowhere", 3}, {"data.fields.text=body", 3}, {"train.freeze=[nothing.*]", 2},
                                                      {"placement=[{groups: 'block*', optimizer: world}]", 2}, {"data.train=[two.jsonl]", 3}};
  for (const auto& [override, code] : rows) {
    const Printed printed = train("runs/a", {"--ranks", "3", override});
    EXPECT_EQ(printed.code, code) << printed.errors;
    EXPECT_THAT(printed.errors, ::testing::Not(HasSubstr("rank 0"))) << override;
    EXPECT_EQ(printed.errors.find("error: "), printed.errors.rfind("error: ")) << printed.errors;
  }
}

TEST_F(Training, OneRankAloneNamesNoRank) {
  const Printed printed = train("runs/a");
  EXPECT_EQ(printed.code, 0);
  EXPECT_THAT(printed.errors, ::testing::Not(HasSubstr("[rank"))) << printed.errors;
}

TEST_F(Training, ASignalSavesAndResumeGoesOn) {
  Program program({"train", "c.yaml", "run.dir=runs/a", "--ranks", "2", "train.steps=100000", "checkpoint.every=0"}, place_.path());
  for (int i = 0; i < 1500 && steps_of(place_, "runs/a").size() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(program.pid(), SIGTERM);
  const Printed printed = program.wait(60);
  EXPECT_EQ(printed.code, 130) << printed.errors;
  // Rank 0 speaks for all.
  const size_t said = printed.errors.find("stopping after this step");
  EXPECT_NE(said, std::string::npos);
  EXPECT_EQ(printed.errors.find("stopping after this step", said + 1), std::string::npos) << printed.errors;
  const size_t done = losses_of(place_, "runs/a").size();
  ASSERT_GE(done, 3u);
  const Printed resumed = train("runs/a", {"--ranks", "2", "--resume", "checkpoint.every=0", "train.steps=" + std::to_string(done + 2)});
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_EQ(losses_of(place_, "runs/a").size(), done + 2);
}

TEST_F(Training, AKilledRankEndsTheOthersNamingIt) {
  Program program({"train", "c.yaml", "run.dir=runs/a", "--ranks", "3", "train.steps=100000", "checkpoint.every=0"}, place_.path());
  for (int i = 0; i < 1500 && steps_of(place_, "runs/a").size() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 3u);
  ::kill(ranks[1], SIGKILL);
  const Printed printed = program.wait(60);
  EXPECT_EQ(printed.code, 5) << printed.errors;
  EXPECT_THAT(printed.errors, HasSubstr("rank 1"));
}

TEST_F(Training, RefusalsSayWhatAndHow) {
  struct Row {
    std::vector<std::string> arguments;
    int code;
    std::string says;
  };
  const std::vector<Row> rows{
      {{"train", "c.yaml"}, 2, "run.dir"},
      {{"train", "c.yaml", "run.dir=r", "optimizer.lrr=1"}, 2, "did you mean"},
      {{"train", "c.yaml", "run.dir=r", "placement=zero4"}, 2, "zero"},
      {{"train", "c.yaml", "run.dir=r", "placement=hsdp(rack)"}, 2, "rack"},
      {{"train", "c.yaml", "run.dir=r", "topology={pair: 2, node: 0}"}, 2, "node"},
      {{"train", "c.yaml", "run.dir=r", "topology={pair: 2, node: 2}", "--ranks", "3"}, 2, "4"},
      {{"train", "c.yaml", "run.dir=r", "data.train=[missing.jsonl]"}, 3, "missing.jsonl"},
      {{"train", "c.yaml", "run.dir=r", "data.fields.text=body"}, 3, "body"},
      {{"train", "c.yaml", "run.dir=r", "data.sequence.max_tokens=65"}, 2, "positions"},
      {{"train", "c.yaml", "run.dir=r", "batch.micro_tokens=10"}, 2, "micro_tokens"},
      {{"train", "c.yaml", "run.dir=r", "train.freeze=[nothing.*]"}, 2, "command line 'train.freeze=[nothing.*]'"},
      {{"train", "c.yaml", "run.dir=r", "optimizer.decay_exclude=['transformer.wpe.*', 'transformer.h.*.atn.*']"}, 2, "a pattern matches no parameter"},
      {{"plan", "c.yaml", "optimizer.decay_exclude=transformer.wpe"}, 2, "did you mean 'transformer.wpe.weight'?"},
      {{"train", "c.yaml", "run.dir=r", "placement={weights: {shard: world}, optimizer: {shard: self}}", "--ranks", "2"}, 2, "optimizer"},
      {{"train", "c.yaml", "run.dir=r", "--resume"}, 2, "no run"},
      {{"train", "c.yaml", "run.dir=r", "train.freeze=['*']"}, 2, "nothing to train"},
      {{"plan", "c.yaml", "batch.micro_tokens=9223372036854775807"}, 2, "micro_tokens"},
      {{"plan", "c.yaml", "batch.tokens=9223372036854775807"}, 2, "batch.tokens"},
      {{"train", "c.yaml", "run.dir=r", "data.sequence.overlong=error", "data.sequence.max_tokens=16"}, 3, "train.jsonl"},
      {{"plan", "c.yaml", "--limit", "memory=1MiB"}, 4, "largest"},
      {{"eval", "nowhere"}, 2, "nowhere"},
      {{"generate", "nowhere", "--prompt", "x"}, 3, "nowhere"},
      {{"bench", "trian"}, 2, "train"},
      {{"inspect", "train.jsonl"}, 3, "nothing that inspect knows"},
      {{"validate", "c.yaml", "data.train=[two.jsonl]", "topology={node: 3}"}, 3, "more ranks than samples"},
      {{"validate", "c.yaml", "placement=[{groups: 'blok*', optimizer: world}, {groups: '*'}]"}, 2, "matches no parameter group"},
  };
  place_.write("two.jsonl", R"({"text": "a short line"})" "\n" R"({"text": "another"})" "\n");
  for (const Row& row : rows) {
    const Printed printed = run_program(row.arguments, place_.path());
    EXPECT_EQ(printed.code, row.code) << row.arguments.back() << "\n" << printed.errors;
    EXPECT_THAT(printed.errors, HasSubstr(row.says)) << row.arguments.back();
    EXPECT_FALSE(std::filesystem::exists(place_.path() / "r" / "metrics.jsonl")) << row.arguments.back();
  }
}

TEST_F(Training, EvalOfRunModelAndExportAgree) {
  ASSERT_EQ(train("runs/a", {"train.eval_every=3"}).code, 0);
  const auto loss = [&](const std::vector<std::string>& arguments) {
    const Printed printed = run_program(arguments, place_.path());
    EXPECT_EQ(printed.code, 0) << printed.errors;
    return nlohmann::json::parse(printed.output)["loss"].get<double>();
  };
  const double of_run = loss({"eval", "runs/a", "--json"});
  ASSERT_EQ(run_program({"export", "runs/a", "--to", "exported"}, place_.path()).code, 0);
  EXPECT_EQ(loss({"eval", "exported", "data.eval=[eval.jsonl]", "data.sequence.max_tokens=64", "--json"}), of_run);
  EXPECT_NEAR(loss({"eval", "exported", "data.eval=[eval.jsonl]", "data.sequence.max_tokens=64", "--json", "--ranks", "2", "placement=zero3"}), of_run, 1e-6 * of_run);
}

TEST_F(Training, ARankWithAnotherTopologyIsRefused) {
  const auto command = [](const std::string& topology) { return std::vector<std::string>{"train", "c.yaml", "run.dir=r", "topology=" + topology}; };
  // Other rates alone: the tree is the same, but a plan may depend on them.
  const std::vector<std::pair<std::string, std::string>> others{{"{node: {size: 2, bandwidth: 2Gbit}}", "node: 2 x 250000000 B/s"}, {"{pair: {size: 2, bandwidth: 1Gbit}}", "pair: 2 x 125000000 B/s"}};
  for (const auto& [other, shown] : others) {
    const auto ended = run_ranks({command("{node: {size: 2, bandwidth: 1Gbit}}"), command(other)}, place_.path());
    for (const Printed& rank : ended) {
      EXPECT_EQ(rank.code, 5) << rank.errors;
      EXPECT_THAT(rank.errors, HasSubstr("rank 0 and rank 1 were started differently: 'topology' differs"));
      EXPECT_THAT(rank.errors, HasSubstr(shown));
    }
    EXPECT_FALSE(std::filesystem::exists(place_.path() / "r" / "metrics.jsonl"));
  }
  // Another number of ranks does not even fit the launcher.
  const auto ended = run_ranks({command("{node: 2}"), command("{node: 3}")}, place_.path());
  EXPECT_EQ(ended[1].code, 2) << ended[1].errors;
  EXPECT_NE(ended[0].code, 0);
}

// The layout follows from the measured costs: one path may hold different files on different hosts.
TEST_F(Training, ARankWithOtherCostCurvesIsRefused) {
  const Workplace other;
  write_tiny_run(other);
  place_.write("curves.yaml", "attention: [[16, 1e-4], [64, 1e-3]]\n");
  other.write("curves.yaml", "attention: [[16, 1e-4], [64, 2e-3]]\n");
  const std::vector<std::string> command{"train", "c.yaml", "run.dir=" + (place_.path() / "r").string(), "topology={node: 2}", "data.sequence.layout=balanced", "data.sequence.curves=curves.yaml"};
  for (const Printed& rank : run_ranks({command, command}, {place_.path(), other.path()})) {
    EXPECT_EQ(rank.code, 5) << rank.errors;
    EXPECT_THAT(rank.errors, HasSubstr("rank 0 and rank 1 were started differently: 'file of data.sequence.curves' differs"));
  }
  other.write("curves.yaml", place_.read("curves.yaml"));
  for (const Printed& rank : run_ranks({command, command}, {place_.path(), other.path()})) EXPECT_EQ(rank.code, 0) << rank.errors;
}

}  // namespace
}  // namespace ballast::testing
