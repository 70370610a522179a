// ballast generate: text from a run or a model.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_generate(CLI::App& app, Chosen& chosen) {
  auto [verb, options] =
      add_verb<TextOptions>(app, chosen, "generate", "Write text that continues a prompt", "Running", run_generate);
  verb->add_option("RUN|MODEL_DIR", options->path, "Run folder or Hugging Face model folder")
      ->required()
      ->option_text(" ");
  verb->add_option("--prompt", options->prompt, "Text to continue")->required()->option_text("TEXT");
  verb->add_option("--tokens", options->tokens, "Most tokens to write; the end of text ends it earlier")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [100]");
  verb->add_flag("--chat", options->chat, "The prompt is a user's message: put it into the chat template");
  verb->add_option("--temperature", options->temperature, "Spread of the choice; 0 takes the most likely token")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("T [0.8]")
      ->group("Sampling");
  verb->add_option("--top-p", options->top_p,
                   "Choose among the most likely tokens that hold this share of the probability")
      ->check(CLI::Range(1e-9, 1.0))
      ->option_text("P [1]")
      ->group("Sampling");
  verb->add_option("--top-k", options->top_k, "Choose among so many of the most likely tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->option_text("K [0]")
      ->group("Sampling");
  verb->add_option("--seed", options->seed, "Seed of the choice")
      ->check(CLI::Validator(
          [](std::string& text) { return text.starts_with('-') ? "found " + text + ", expected a whole number from 0" : ""; }, ""))
      ->option_text("S [0]")
      ->group("Sampling");
  verb->add_option("--precision", options->precision, "Dtype of compute")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->option_text("fp32|bf16 [fp32]")
      ->group("Machine");
  verb->add_option("--threads", options->threads, "Compute threads; 0: all that the process may use")
      ->check(CLI::Range(int64_t{0}, int64_t{4096}))
      ->option_text("N [0]")
      ->group("Machine");
  add_json(*verb, options->json);
}

}  // namespace ballast::cli
