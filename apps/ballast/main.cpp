// The command line: parses, then runs one verb inside the guard that turns failures into exit codes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/base/heap.h"
#include "ballast/base/log.h"
#include "ballast/guard.h"
#include "ballast/verbs.h"

namespace {

constexpr const char* kFooter =
    "Values in a configuration and behind key=value take units: 200MB/s, 4GiB, 3ms, 2M.\n"
    "'ballast VERB --help' shows the options of a verb, 'ballast config schema' every key of a configuration.\n"
    "Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 data, 4 out of memory, 5 peer lost,\n"
    "6 corrupt file, 7 numerical fault, 8 environment, 130 interrupted.";

// The word of an unknown verb, which the parser's own message does not name.
void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  if (std::find(verbs.begin(), verbs.end(), argv[1]) != verbs.end()) return;
  const std::string near = ballast::nearest(argv[1], verbs);
  throw ballast::Error(ballast::ErrorKind::Usage, fmt::format("unknown verb '{}'", ballast::printable(argv[1])))
      .at("command line")
      .expected(fmt::format("one of {}", fmt::join(verbs, ", ")))
      .cure(near.empty() ? "see 'ballast --help'" : "did you mean '" + near + "'?");
}

int parse_and_run(int argc, char** argv) {
  using namespace ballast;
  CLI::App app("Ballast trains, fine-tunes and runs transformer models where memory and bandwidth are the limit.",
               "ballast");
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "Show this help");
  app.fallthrough();
  bool version = false;
  app.add_flag_callback(
      "--version",
      [&] {
        version = true;
        throw CLI::CallForVersion("", 0);
      },
      "Show the versions of Ballast and libtorch, and the CPU path");
  std::string level = "info";
  app.add_option("--log-level", level, "Least important message to show: debug, info, warning, error, off")
      ->option_text("LEVEL [info]");

  cli::Chosen chosen;
  cli::add_data(app, chosen);
  cli::add_validate(app, chosen);
  cli::add_plan(app, chosen);
  cli::add_config(app, chosen);
  cli::add_train(app, chosen);
  cli::add_eval(app, chosen);
  cli::add_generate(app, chosen);
  cli::add_export(app, chosen);
  cli::add_inspect(app, chosen);
  cli::add_report(app, chosen);
  cli::add_bench(app, chosen);
  cli::add_doctor(app, chosen);

  check_verb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    std::cout << cli::version_text() << "\n";
    return 0;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string verb = argc > 1 && argv[1][0] != '-' ? argv[1] : "";  // a known one: check_verb
    throw Error(ErrorKind::Usage, error.what())
        .at("command line")
        .cure(verb.empty() ? "see 'ballast --help'" : fmt::format("see 'ballast {} --help'", verb));
  }
  set_log_level(parse_log_level(level));
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  ballast::keep_freed_pages();
  return ballast::cli::guarded([&] { return parse_and_run(argc, argv); });
}
