#pragma once
// One function per verb adds its parser. A parser only fills options; what to run is left in `Chosen`.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "ballast/train/commands.h"

namespace ballast::cli {

// What the command line asked for: runs after parsing, gives the exit code.
using Chosen = std::function<int()>;

void add_data(CLI::App& app, Chosen& chosen);
void add_validate(CLI::App& app, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_train(CLI::App& app, Chosen& chosen);
void add_eval(CLI::App& app, Chosen& chosen);
void add_generate(CLI::App& app, Chosen& chosen);
void add_export(CLI::App& app, Chosen& chosen);
void add_inspect(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);
void add_config(CLI::App& app, Chosen& chosen);

// "ballast 0.1.0", libtorch's version and the CPU path that its kernels take on this machine.
std::string version_text();

// CONFIG [key=value ...] --ranks N.
void add_config_source(CLI::App& verb, ConfigSource& source, const std::string& name = "CONFIG",
                       const std::string& what = "Configuration file (YAML)");
void add_json(CLI::App& verb, bool& json);

// A new verb in a group of the help. T lives as long as the parser.
template <class T>
std::pair<CLI::App*, std::shared_ptr<T>> add_verb(CLI::App& app, Chosen& chosen, const std::string& name,
                                                  const std::string& what, const std::string& group,
                                                  int (*run)(const T&)) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->group(group);
  auto options = std::make_shared<T>();
  verb->callback([&chosen, options, run] { chosen = [options, run] { return run(*options); }; });
  return {verb, options};
}

}  // namespace ballast::cli
