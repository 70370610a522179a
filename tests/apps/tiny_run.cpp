#include "tests/apps/tiny_run.h"

#include <sstream>

namespace ballast::testing {

void write_tiny_run(const Workplace& place) {
  write_byte_tokenizer(place);
  std::string train, eval;
  for (int i = 0; i < 120; ++i) {
    const std::string text = "Line " + std::to_string(i * 37 % 101) + (i % 3 == 0 ? " is longer than the others, by a good many letters, so that lengths differ." : " is short.");
    (i < 100 ? train : eval) += nlohmann::json{{"text", text}}.dump() + "\n";
  }
  place.write("train.jsonl", train);
  place.write("eval.jsonl", eval);
  place.write("model.json", R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})");
  place.write("c.yaml", R"(run: {seed: 7}
model: {config: model.json}
data: {train: [train.jsonl], eval: [eval.jsonl], tokenizer: tokenizer, sequence: {max_tokens: 64}}
batch: {tokens: 512, micro_tokens: 128}
train: {steps: 6, timeout: 20s}
optimizer: {name: adamw, lr: 1e-3, eps: 1e-4, clip: 1.0, schedule: {kind: cosine, warmup: 2, min_lr: 1e-4}}
checkpoint: {every: 3, keep: 5}
)");
}

std::vector<nlohmann::json> steps_of(const Workplace& place, const std::string& run) {
  std::vector<nlohmann::json> steps;
  std::istringstream lines(place.read(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) steps.push_back(json);
  }
  return steps;
}

std::vector<double> losses_of(const Workplace& place, const std::string& run) {
  std::vector<double> losses;
  for (const auto& step : steps_of(place, run)) losses.push_back(step["loss"].get<double>());
  return losses;
}

Printed TinyRun::train(const std::string& run, const std::vector<std::string>& more) const {
  std::vector<std::string> arguments{"train", "c.yaml", "run.dir=" + run};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, place_.path());
}

}  // namespace ballast::testing
