// ballast eval: loss and perplexity on files.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_eval(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<EvalOptions>(app, chosen, "eval", "Loss and perplexity of a run or a model on files",
                                               "Running", run_eval);
  add_config_source(*verb, options->config, "CONFIG|RUN|MODEL_DIR",
                    "Configuration, run folder, or Hugging Face model folder; give files by 'data.eval=[x.jsonl]'");
  add_json(*verb, options->json);
}

}  // namespace ballast::cli
