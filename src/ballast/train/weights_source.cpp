#include "ballast/train/weights_source.h"

#include <charconv>

#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/checkpoint/checkpoint.h"
#include "ballast/train/run_folder.h"
#include "ballast/train/setup.h"

namespace ballast {

namespace {

CheckpointHandle choose(const std::filesystem::path& run, const std::string& which) {
  if (which == "newest") return find_checkpoint(run);
  if (which == "best") {
    std::vector<BadCheckpoint> bad;
    const std::optional<CheckpointHandle> best = best_checkpoint(run, bad);
    for (const BadCheckpoint& one : bad) log_warning("checkpoint {} is not used: {}", one.folder.string(), one.why);
    return best ? *best : find_checkpoint(run);
  }
  int64_t step = 0;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), step);
  if (error != std::errc() || end != which.data() + which.size()) {
    throw Error(ErrorKind::Usage, "no such checkpoint name").at("--checkpoint").found(printable(which)).expected("best, newest or a step");
  }
  return open_checkpoint(checkpoints_folder(run) / step_folder_name(step));
}

}  // namespace

std::shared_ptr<const Tokenizer> WeightsSource::tokenizer() const {
  if (!tokenizer_files(folder).empty()) return load_tokenizer(folder);
  if (config && !config->data.tokenizer.empty()) return load_tokenizer(config->data.tokenizer);
  throw Error(ErrorKind::Data, "the model folder holds no tokenizer").at(folder.string()).cure("copy the tokenizer's files into it: tokenizer.json, vocab.json and merges.txt, tokenizer.model or a .tiktoken file");
}

WeightsSource open_weights(const std::filesystem::path& path, const std::string& which, std::span<const std::string> overrides) {
  WeightsSource source;
  if (is_run_folder(path)) {
    const CheckpointHandle checkpoint = choose(path, which);
    source.config = load_run_config(path / "config.yaml", overrides);
    source.folder = checkpoint.model_folder();
    source.step = checkpoint.step;
    log_info("weights of {}", checkpoint.folder.string());
    return source;
  }
  if (std::filesystem::exists(path / "manifest.json")) {
    const CheckpointHandle checkpoint = open_checkpoint(path);
    source.folder = checkpoint.model_folder();
    source.step = checkpoint.step;
    return source;
  }
  if (!std::filesystem::exists(path / "config.json")) {
    throw Error(ErrorKind::Data, std::filesystem::exists(path) ? "this is neither a run, a checkpoint nor a model folder" : "there is no such folder")
        .at(path.string())
        .expected("config.yaml and metrics.jsonl of a run, manifest.json of a checkpoint, or config.json of a model")
        .cure("check the path: name a run.dir, a folder below its checkpoints, or a model folder");
  }
  source.folder = path;
  return source;
}

}  // namespace ballast
