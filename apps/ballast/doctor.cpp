// ballast doctor: what this machine offers.
#include "ballast/train/link_report.h"
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
  verb->add_option("SETTINGS", links->overrides, "With --links: topology='{node: 2, cluster: 2}'; default: one level")
      ->option_text("key=value ...");
  verb->add_option("--ranks", links->ranks, "With --links; 0: as the launcher or the topology says")
      ->check(CLI::Range(int64_t{0}, int64_t{100'000'000}))
      ->option_text("N [0]")
      ->group("Machine");
  add_json(*verb, options->json);
  verb->callback([&chosen, options = options, links, measure] {
    chosen = [options, links, measure] {
      if (!*measure && (!links->overrides.empty() || links->ranks > 0)) {
        throw Error(ErrorKind::Usage, "doctor takes settings and --ranks only with --links")
            .at("command line")
            .cure("add --links, or leave them away");
      }
      links->json = options->json;
      return *measure ? doctor_links(*links) : run_doctor(*options);
    };
  });
}

}  // namespace ballast::cli
