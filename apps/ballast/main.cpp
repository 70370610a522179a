// The command line: parses, then runs one verb inside the guard that turns failures into exit codes.
#include <cstdio>
#include <iostream>
#include <sstream>

#include "ballast/base/log.h"
#include "ballast/guard.h"
#include "ballast/verbs.h"

namespace {

constexpr const char* kFooter =
    "Values in a configuration and behind key=value take units: 200MB/s, 4GiB, 3ms, 2M.\n"
    "'ballast VERB --help' shows the options of a verb, 'ballast config schema' every key of a configuration.\n"
    "Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 data, 4 out of memory, 5 peer lost,\n"
    "6 corrupt file, 7 numerical fault, 8 environment, 130 interrupted.";

int parse_and_run(int argc, char** argv) {
  using namespace ballast;
  CLI::App app("Ballast trains, fine-tunes and runs transformer models where memory and bandwidth are the limit.", "ballast");
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "Show this help");
  app.fallthrough();
  bool version = false;
  app.add_flag_callback("--version", [&] {
    version = true;
    throw CLI::CallForVersion("", 0);
  }, "Show the versions of Ballast and libtorch, and the CPU path");
  std::string level = "info";
  app.add_option("--log-level", level, "Least important message to show: debug, info, warning, error, off")->option_text("LEVEL [info]");

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

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    std::cout << cli::version_text() << "\n";
    return 0;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::Usage, error.what()).at("command line").cure("see 'ballast --help', or 'ballast VERB --help'");
  }
  set_log_level(parse_log_level(level));
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  return ballast::cli::guarded([&] { return parse_and_run(argc, argv); });
}
