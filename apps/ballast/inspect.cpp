// ballast inspect: what a file or folder holds, and whether its bytes are right.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_inspect(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<InspectOptions>(
      app, chosen, "inspect", "Show what a run, checkpoint, model, tokenizer, safetensors or token file holds",
      "After a run", run_inspect);
  verb->add_option("PATH", options->path, "File or folder")->required()->option_text(" ");
  verb->add_flag("--verify", options->verify, "Read everything and compare the hashes");
  add_json(*verb, options->json);
}

}  // namespace ballast::cli
