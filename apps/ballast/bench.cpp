// ballast bench: measurements on this machine.
#include "ballast/verbs.h"

namespace ballast::cli {

void add_bench(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<BenchOptions>(
      app, chosen, "bench", "Measure this machine, as in 'ballast bench train model.preset=gpt2-124m batch=1 seq=512'",
      "Insight", run_bench);
  verb->add_option("NAME", options->name, "What to measure; an unknown name lists all")->required()->option_text(" ");
  verb->add_option("SETTINGS", options->overrides,
                   "train takes model.preset=..., batch=B, seq=T [tokens], precision=bf16|fp32, threads=N, steps=K, "
                   "ranks=R, placement=..., topology=...; links takes topology=...; partition also placements=LIST, turns=N, seeds=N; "
                   "layout takes lengths=FILE, layouts=LIST, ranks=R, micro_tokens=N; sequences also group=N and runs the steps")
      ->option_text("key=value ...");
  verb->add_option("--ranks", options->ranks, "Like ranks=N; 0: one, or as the topology says; of layout 64")
      ->check(CLI::Range(int64_t{0}, int64_t{100'000'000}))
      ->option_text("N [0]")
      ->group("Machine");
  const auto setting = [&options = options, verb = verb](const char* name, const char* key, const char* help) {
    verb->add_option_function<std::string>(name, [options, key](const std::string& value) { options->overrides.push_back(std::string(key) + "=" + value); }, help);
  };
  setting("--lengths", "lengths", "layout, sequences: a file with one length a line, like lengths=FILE");
  setting("--topology", "topology", "Like topology=TREE");
  verb->add_flag("--convergence", options->convergence, "partition: losses of lossy placements beside the exact one, on real text over several seeds");
  verb->add_flag("--errors", options->errors, "partition: how far one step's gradients and weights are from an exact step's");
  add_json(*verb, options->json);
}

}  // namespace ballast::cli
