// ballast doctor: what this machine offers.
#include "ballast/train/link_report.h"
#include "ballast/train/verb_curves.h"
#include "ballast/verbs.h"

namespace ballast::cli {

void add_doctor(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<DoctorOptions>(
      app, chosen, "doctor", "Show and check what this machine offers: CPUs, memory, libraries, launchers", "Insight",
      run_doctor);
  auto links = std::make_shared<LinkOptions>();
  auto measure = std::make_shared<bool>(false);
  verb->add_flag("--links", *measure,
                 "Measure latency and bandwidth of every level of the topology and print it as YAML for a configuration")
      ->group("Output");
  auto curves = std::make_shared<bool>(false);
  verb->add_flag("--curves", *curves, "Measure attention and linear modules of a layer by length, and links, and print what data.sequence.curves reads")
      ->group("Output");
  verb->add_option("SETTINGS", links->overrides, "With --links: topology='{node: 2, cluster: 2}'; default: one level. With --curves also model.preset=...")
      ->option_text("key=value ...");
  verb->add_option("--ranks", links->ranks, "With --links or --curves; 0: as the launcher or the topology says")
      ->check(CLI::Range(int64_t{0}, int64_t{100'000'000}))
      ->option_text("N [0]")
      ->group("Machine");
  add_json(*verb, options->json);
  verb->callback([&chosen, options = options, links, measure, curves] {
    chosen = [options, links, measure, curves] {
      if (*measure && *curves) throw Error(ErrorKind::Usage, "--links and --curves exclude each other").at("command line").cure("call doctor twice");
      if (*curves) {
        if (options->json) throw Error(ErrorKind::Usage, "--curves prints a file for data.sequence.curves, no JSON").at("--json").cure("leave --json away");
        return doctor_curves({links->overrides, links->ranks});
      }
      if (!*measure && (!links->overrides.empty() || links->ranks > 0)) {
        throw Error(ErrorKind::Usage, "doctor takes settings and --ranks only with --links or --curves")
            .at("command line")
            .cure("add one of them, or leave the settings away");
      }
      links->json = options->json;
      return *measure ? doctor_links(*links) : run_doctor(*options);
    };
  });
}

}  // namespace ballast::cli
