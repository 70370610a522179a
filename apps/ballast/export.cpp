// ballast export: a run as a Hugging Face model folder.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_export(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<ExportOptions>(app, chosen, "export", "Write a run as a Hugging Face model folder",
                                                 "After a run", run_export);
  verb->add_option("RUN", options->run, "Run folder")->required()->option_text(" ");
  verb->add_option("--to", options->to, "Folder to write; must not exist or be empty")->required()->option_text("DIR");
  verb->add_option("--checkpoint", options->checkpoint, "best (newest if nothing was evaluated), newest, or a step")
      ->option_text("WHICH [best]");
  verb->add_option("--precision", options->precision, "Dtype of the weights")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->option_text("fp32|bf16 [fp32]");
}

}  // namespace ballast::cli
