#pragma once
// The folder of a run as rank 0 writes it: resolved configuration, metrics, TensorBoard files, log; locked against a second run.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "ballast/base/files.h"
#include "ballast/config/run_config.h"
#include "ballast/train/metrics.h"
#include "ballast/train/tensorboard.h"

namespace ballast {

// config.yaml of a run folder, resolved: for eval, generate, export, report.
RunConfig config_of_run(const std::filesystem::path& run);
bool is_run_folder(const std::filesystem::path& path);
// Makes a folder that lies in run.dir or beside it. Throws Error naming the key.
void make_folders_of_run(const RunConfig& config, const std::filesystem::path& folder);

class RunFolder {
 public:
  // Starts a run in config.run.dir: refused if it holds one already. With `resumed_step`, goes on with the run that it holds: keys that may not
  // change are compared, metrics after that step are cut off. Throws Error(Usage).
  RunFolder(const RunConfig& config, std::optional<int64_t> resumed_step);

  const std::filesystem::path& path() const { return path_; }
  // What the run runs on, for the report: an object of names and values.
  void write_environment(const nlohmann::json& values) const;
  void append(const MetricsLine& line);
  const std::vector<MetricsLine>& history() const { return metrics_->kept(); }

 private:
  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
};

// Throws Error(Usage) if the folder holds a run and `resume` is not asked for, or holds none and it is.
void check_run_folder(const RunConfig& config, bool resume);

}  // namespace ballast
