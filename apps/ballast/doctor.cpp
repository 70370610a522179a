// ballast doctor: what this machine offers.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_doctor(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<DoctorOptions>(
      app, chosen, "doctor", "Show and check what this machine offers: CPUs, memory, libraries, launchers", "Insight",
      run_doctor);
  add_json(*verb, options->json);
}

}  // namespace ballast::cli
