// ballast train: run the training loop.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_train(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<TrainOptions>(
      app, chosen, "train", "Train a model; 'ballast train CONFIG --resume' goes on", "Running", run_train);
  add_config_source(*verb, options->config);
  verb->add_flag("--resume", options->resume, "Go on from the newest valid checkpoint of the run folder")->group("Run");
  auto trace = std::make_shared<std::string>();
  verb->add_option("--trace", *trace, "Write the timeline of these steps for Perfetto")
      ->option_text("FIRST:LAST")
      ->group("Output");
  verb->callback([&chosen, options = options, trace] {
    chosen = [options, trace] {
      if (!trace->empty()) {
        try {
          options->trace = parse_trace_range(*trace);
        } catch (const Error& error) {
          Error copy = error;
          throw std::move(copy).at("--trace");
        }
      }
      return run_train(*options);
    };
  });
}

}  // namespace ballast::cli
