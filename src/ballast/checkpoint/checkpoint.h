#pragma once
// The checkpoints of a run: their folders, what makes one valid, and how one is chosen to go on from.
//   RUN/checkpoints/step-00000050/       manifest.json, state.json, state-00000-of-00004.safetensors ..., model/
//   RUN/checkpoints/best-step-00000040/  the same, of the lowest evaluation loss; its files may be hard links
//   RUN/checkpoints/*.tmp                being written or deleted, or left by a crash: never read
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/checkpoint/state.h"

namespace ballast {

std::filesystem::path checkpoints_folder(const std::filesystem::path& run);
std::string step_folder_name(int64_t step);                  // "step-00000050"
std::string best_folder_name(int64_t step);                  // "best-step-00000050"
std::string shard_file_name(int64_t rank, int64_t ranks);    // "state-00001-of-00004.safetensors"

// A checkpoint whose files are those of its manifest.
struct CheckpointHandle {
  std::filesystem::path folder;
  int64_t step = 0;
  bool best = false;  // from a best-step folder
  Manifest manifest;
  CheckpointState state;

  std::filesystem::path model_folder() const { return folder / "model"; }
  int64_t bytes() const;
  // Throws Error(Usage) naming found and expected if it was written by another number of ranks or with another cut.
  void require_layout(int64_t ranks, const std::string& layout_fingerprint) const;
};

enum class Verify { Sizes, Content };  // Content reads every byte and compares hashes

// Opens a folder: manifest, all files it lists and no others, state. Throws Error(CorruptFile) naming the file that is
// wrong and how, Error(Data) if there is no such folder or no manifest, Error(Environment) if it cannot be read.
CheckpointHandle open_checkpoint(const std::filesystem::path& folder, Verify verify = Verify::Content);

// A checkpoint folder that is no checkpoint, and why.
struct BadCheckpoint {
  std::filesystem::path folder;
  std::string why;
};

// The valid checkpoint with the highest step, those of best-step folders included; what was wrong with the newer ones is
// added to `bad`. Nothing if the run has no valid one. Reads only: safe beside a run that writes.
std::optional<CheckpointHandle> newest_valid(const std::filesystem::path& run, std::vector<BadCheckpoint>& bad,
                                             Verify verify = Verify::Content);
// The best checkpoint, if one was kept.
std::optional<CheckpointHandle> best_checkpoint(const std::filesystem::path& run, std::vector<BadCheckpoint>& bad,
                                                Verify verify = Verify::Content);
// What a person gives: a run folder (its newest valid checkpoint; `best` chooses the best), or a checkpoint folder.
// Throws Error(Data) if there is none, listing what was wrong with those that are there.
CheckpointHandle find_checkpoint(const std::filesystem::path& run_or_checkpoint, bool best = false);

// Steps of all step-N folders, ascending, valid or not.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& run);

// Keeps step-N as the best one (hard links; copies where the file system has no links) and then removes the former best.
void keep_best(const std::filesystem::path& run, int64_t step);

struct Pruned {
  std::vector<std::filesystem::path> removed;
  std::vector<BadCheckpoint> bad;  // left alone: for a person to look at
};
// Removes all but the `keep` newest valid checkpoints. Never a best one, never a damaged one, and nothing at all unless
// one that stays proves valid down to its last byte.
Pruned prune_checkpoints(const std::filesystem::path& run, int64_t keep);

// Removes what crashed writes and deletions left. Only by the run that owns the folder, while it writes nothing.
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run);

}  // namespace ballast
