// ballast validate: is everything there and right, without training?
#include "ballast/verbs.h"

namespace ballast::cli {

void add_validate(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<ValidateOptions>(app, chosen, "validate",
                                                   "Check a configuration with its files, model, data and placement",
                                                   "Before a run", run_validate);
  add_config_source(*verb, options->config);
  add_json(*verb, options->json);
}

}  // namespace ballast::cli
