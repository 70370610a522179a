// Options that several verbs have in common, so that they read the same everywhere.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_config_source(CLI::App& verb, ConfigSource& source, const std::string& name, const std::string& what) {
  verb.add_option(name, source.path, what)->required()->option_text(" ");
  verb.add_option("OVERRIDES", source.overrides,
                  "Values that replace those of the file, as in optimizer.lr=3e-4 or 'topology={pair: 2}'; see "
                  "'ballast config schema'")
      ->option_text("key=value ...");
  verb.add_option("--ranks", source.ranks, "Ranks; 0: as the launcher (torchrun, mpirun, srun) or the topology says")
      ->check(CLI::Range(int64_t{0}, int64_t{100'000'000}))
      ->option_text("N [0]")
      ->group("Machine");
}

void add_json(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print the result as one JSON object")->group("Output");
}

}  // namespace ballast::cli
