// The built binary as a user meets it: help, versions, the schema, and one message with exit code 2 for what it cannot
// take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/base/files.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Outcome {
  int code = -1;
  std::string output, errors;
};

// Runs the binary with arguments as they are, without a shell.
Outcome run(const std::vector<std::string>& arguments) {
  const std::string base = testing::TempDir() + "ballast_command_line." + std::to_string(::getpid());
  const std::string output = base + ".out", errors = base + ".err";
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen(output.c_str(), "w", stdout) == nullptr || std::freopen(errors.c_str(), "w", stderr) == nullptr)
      ::_exit(126);
    std::vector<char*> argv{const_cast<char*>(BALLAST_BINARY)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(BALLAST_BINARY, argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(output), read_file(errors)};
  std::filesystem::remove(output);
  std::filesystem::remove(errors);
  return outcome;
}

const std::vector<std::vector<std::string>> kVerbs{
    {"data"},   {"data", "prepare"}, {"validate"}, {"plan"},   {"train"},  {"eval"},   {"generate"},
    {"export"}, {"inspect"},         {"bench"},    {"report"}, {"doctor"}, {"config"}, {"config", "schema"}};

TEST(CommandLine, EveryVerbHasHelp) {
  for (std::vector<std::string> verb : kVerbs) {
    const std::string name = verb.back();
    verb.push_back("--help");
    const Outcome outcome = run(verb);
    EXPECT_EQ(outcome.code, 0) << name;
    EXPECT_THAT(outcome.output, HasSubstr(name));
    EXPECT_THAT(outcome.output, HasSubstr("--help"));
    EXPECT_THAT(outcome.errors, IsEmpty());
  }
}

TEST(CommandLine, HelpIsGroupedAndListsAllVerbs) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* group : {"Before a run:", "Running:", "After a run:", "Insight:"})
    EXPECT_THAT(outcome.output, HasSubstr(group));
  for (const std::vector<std::string>& verb : kVerbs) EXPECT_THAT(outcome.output, HasSubstr("\n  " + verb[0]));
  EXPECT_THAT(outcome.output, HasSubstr("Exit codes"));
  const Outcome generate = run({"generate", "--help"});
  EXPECT_THAT(generate.output, HasSubstr("Sampling:"));
  EXPECT_THAT(generate.output, HasSubstr("[0.8]"));
}

TEST(CommandLine, VersionNamesLibtorchAndTheCpuPath) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output,
              testing::MatchesRegex("ballast [0-9]+\\.[0-9]+\\.[0-9]+\nlibtorch 2\\.[0-9.]+\nCPU path .+\n"));
}

TEST(CommandLine, TheSchemaHasThreeFaces) {
  const Outcome json = run({"config", "schema", "--json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_GT(nlohmann::json::parse(json.output)["keys"].size(), 40u);
  const Outcome markdown = run({"config", "schema", "--markdown"});
  EXPECT_EQ(markdown.output, read_file(std::string(BALLAST_SOURCE_DIR) + "/docs/configuration.md"));
  EXPECT_THAT(run({"config", "schema"}).output, HasSubstr("\noptimizer:\n"));
  EXPECT_EQ(run({"config", "schema", "--json", "--markdown"}).code, 2);
}

TEST(CommandLine, WrongArgumentsAreOneMessageAndCodeTwo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table{
      {{}, "subcommand"},
      {{"trian"}, "trian"},
      {{"train"}, "CONFIG"},
      {{"train", "a.yaml", "--bogus"}, "--bogus"},
      {{"train", "a.yaml", "--ranks", "two"}, "two"},
      {{"train", "a.yaml", "--ranks", "-1"}, "-1"},
      {{"train", "a.yaml", "--trace", "12:10"}, "first:last"},
      {{"plan", "a.yaml", "--limit", "disk=3"}, "memory=8GiB"},
      {{"plan", "a.yaml", "--limit", "memory=8G"}, "'GiB' a power of 1024"},
      {{"generate", "runs/a"}, "--prompt"},
      {{"generate", "runs/a", "--prompt", "x", "--top-p", "2"}, "--top-p"},
      {{"generate", "runs/a", "--prompt", "x", "--seed", "-1"}, "--seed: found -1, expected a whole number from 0"},
      {{"export", "runs/a", "--bogus"}, "see 'ballast export --help'"},
      {{"--bogus"}, "see 'ballast --help'"},
      {{"export", "runs/a"}, "--to"},
      {{"data"}, "subcommand"},
      {{"config", "schema", "--log-level", "loud"}, "unknown log level"},
  };
  for (const auto& [arguments, what] : table) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << what;
    EXPECT_THAT(outcome.errors, HasSubstr("usage error: "));
    EXPECT_THAT(outcome.errors, HasSubstr(what));
    EXPECT_THAT(outcome.output, IsEmpty());
  }
}

TEST(CommandLine, WrongConfigurationsNameTheirPlace) {
  const std::string path = testing::TempDir() + "ballast_wrong." + std::to_string(::getpid()) + ".yaml";
  write_aside(path, "model: {preset: gpt2-10m}\noptimizer:\n  lrr: 3e-4\n");
  for (const std::string verb : {"validate", "plan", "train", "eval"}) {
    const Outcome outcome = run({verb, path});
    EXPECT_EQ(outcome.code, 2) << verb;
    EXPECT_THAT(outcome.errors, HasSubstr(path + ":3:3, optimizer"));
    EXPECT_THAT(outcome.errors, HasSubstr("did you mean 'optimizer.lr'?"));
    const Outcome missing = run({verb, path + ".none"});
    EXPECT_EQ(missing.code, 2) << verb;
    EXPECT_THAT(missing.errors, HasSubstr("errno 2"));
    EXPECT_THAT(missing.errors, Not(HasSubstr("internal error")));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ballast
