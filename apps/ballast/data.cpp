// ballast data prepare: tokenize once into memory-mapped stores.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_data(CLI::App& app, Chosen& chosen) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->group("Before a run");
  data->require_subcommand(1);
  auto [verb, options] = add_verb<DataPrepareOptions>(*data, chosen, "prepare",
                                                      "Tokenize the files of a configuration into memory-mapped stores",
                                                      "Verbs", run_data_prepare);
  add_config_source(*verb, options->config);
  verb->add_flag("--force", options->force, "Prepare again what is there already");
}

}  // namespace ballast::cli
