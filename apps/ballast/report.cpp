// ballast report: a run as one HTML page.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_report(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<ReportOptions>(app, chosen, "report", "Write a run as one self-contained HTML page",
                                                 "After a run", run_report);
  verb->add_option("RUN", options->run, "Run folder")->required()->option_text(" ");
  verb->add_option("--output", options->output, "The page; default RUN/report.html")->option_text("FILE");
}

}  // namespace ballast::cli
