#include "ballast/train/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/checkpoint/checkpoint.h"

namespace ballast {

namespace {
constexpr const char* kConfigFile = "config.yaml";
}

bool is_run_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path / kConfigFile, ignored) && std::filesystem::exists(path / "metrics.jsonl", ignored);
}

RunConfig config_of_run(const std::filesystem::path& run) { return load_run_config(run / kConfigFile); }

void check_run_folder(const RunConfig& config, bool resume) {
  if (config.run.dir.empty()) throw Error(ErrorKind::Usage, "no run folder is given").at("run.dir").cure("set run.dir, for example run.dir=runs/a");
  const std::filesystem::path path = config.run.dir;
  if (resume) {
    // The metrics may be lost: checkpoints and configuration are what a run goes on from.
    if (!std::filesystem::exists(path / kConfigFile)) {
      const bool has_checkpoints = std::filesystem::exists(path / "checkpoints"), has_metrics = std::filesystem::exists(path / "metrics.jsonl");
      throw Error(ErrorKind::Usage, has_checkpoints || has_metrics ? "--resume: the run has lost its config.yaml" : "--resume: there is no run to go on with")
          .at(path.string())
          .cure(has_checkpoints ? "start a new run from model.path: the model folder of its newest checkpoint"
                : has_metrics   ? "start a new run in another folder, or remove this one first"
                                : "leave --resume away to start one");
    }
    check_resume(config_of_run(path).source, config.source);
    return;
  }
  std::error_code ignored;
  if (std::filesystem::exists(path / kConfigFile, ignored) || std::filesystem::exists(path / "metrics.jsonl", ignored) ||
      std::filesystem::exists(path / "checkpoints", ignored)) {
    const bool resumable = std::filesystem::exists(path / kConfigFile, ignored);
    const std::vector<int64_t> saved = checkpoint_steps(path);
    throw Error(ErrorKind::Usage, "the run folder holds a run already")
        .at(path.string())
        .found(saved.empty() ? "a run that ended before its first checkpoint" : fmt::format("checkpoints up to step {}", saved.back()))
        .cure(!resumable      ? "choose another run.dir, or remove this folder first"
              : saved.empty() ? "choose another run.dir, or start it again from step 0 by --resume"
                              : "choose another run.dir, or go on with it by --resume");
  }
}

void make_folders_of_run(const RunConfig& config, const std::filesystem::path& folder) {
  try {
    make_folders(folder);
  } catch (const Error& error) {
    Error copy = error;
    throw std::move(copy).at(config.source.place("run.dir"), folder.string()).cure("choose a run.dir where folders can be made");
  }
}

RunFolder::RunFolder(const RunConfig& config, std::optional<int64_t> resumed_step) : path_(config.run.dir) {
  make_folders_of_run(config, path_);
  lock_.emplace(path_);
  check_run_folder(config, resumed_step.has_value());
  if (resumed_step) {
    const Config before = config_of_run(path_).source;
    const auto shown = [](const std::string& value) { return value.empty() ? "not set" : value; };
    for (const std::string& key : check_resume(before, config.source))
      log_info("resumed with another {}: {} instead of {}", key, shown(config.source.canonical(key)), shown(before.canonical(key)));
  }
  // The configuration comes first: with it --resume takes up a run that ended at any moment after.
  write_aside(path_ / kConfigFile, config.source.write());
  metrics_ = resumed_step ? std::make_unique<MetricsWriter>(path_ / "metrics.jsonl", *resumed_step) : std::make_unique<MetricsWriter>(path_ / "metrics.jsonl");
  open_log_file(path_ / "log.txt");
  if (config.run.tensorboard) tensorboard_ = std::make_unique<TensorBoardWriter>(path_ / "tensorboard", metrics_->kept());
}

void RunFolder::write_environment(const nlohmann::json& values) const { write_aside(path_ / "environment.json", values.dump(2) + "\n"); }

void RunFolder::append(const MetricsLine& line) {
  metrics_->append(line);
  if (tensorboard_ != nullptr) tensorboard_->append(line);
}

}  // namespace ballast
