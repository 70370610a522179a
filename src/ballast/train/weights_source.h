#pragma once
// Where finished weights come from: a run folder (its best checkpoint, or the newest if none was evaluated), a checkpoint, or a model folder.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ballast/config/run_config.h"
#include "ballast/data/tokenizer.h"

namespace ballast {

struct WeightsSource {
  std::filesystem::path folder;        // an HF model folder
  std::optional<RunConfig> config;     // of the run, if it is one
  int64_t step = 0;                    // of the checkpoint, if it is one
  // The model folder's tokenizer, or where it holds none the run's.
  std::shared_ptr<const Tokenizer> tokenizer() const;
};

// `which` for a run: best, newest, or a step. Throws Error(Data) for a path that is none of them.
WeightsSource open_weights(const std::filesystem::path& path, const std::string& which = "best", std::span<const std::string> overrides = {});

}  // namespace ballast
