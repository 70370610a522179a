// Which checkpoints there are, which one to go on from, and which to let go.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/output_file.h"
#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/folders.h"

namespace ballast {

namespace fs = std::filesystem;

std::optional<FolderName> parse_folder_name(const std::string& name) {
  FolderName parsed;
  std::string rest = name;
  if (rest.starts_with("best-")) {
    parsed.best = true;
    rest = rest.substr(5);
  }
  if (!rest.starts_with("step-")) return std::nullopt;
  rest = rest.substr(5);
  if (rest.size() < 8 || rest.size() > 18 || rest.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  parsed.step = std::stoll(rest);
  // One spelling per step, or two folders could claim it.
  if ((parsed.best ? best_folder_name(parsed.step) : step_folder_name(parsed.step)) != name) return std::nullopt;
  return parsed;
}

std::vector<CheckpointFolder> list_folders(const fs::path& run) {
  std::vector<CheckpointFolder> folders;
  const fs::path root = checkpoints_folder(run);
  std::error_code error;
  if (fs::symlink_status(root, error).type() == fs::file_type::not_found) return folders;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error))
    if (const auto name = parse_folder_name(entry->path().filename().string())) folders.push_back({entry->path(), *name});
  if (error) throw_system_error(error.value(), "list the folder", root);
  std::sort(folders.begin(), folders.end(), [](const CheckpointFolder& a, const CheckpointFolder& b) {
    return a.name.step != b.name.step ? a.name.step > b.name.step : a.name.best < b.name.best;
  });
  return folders;
}

namespace {

std::optional<CheckpointHandle> first_valid(const std::vector<CheckpointFolder>& folders, std::vector<BadCheckpoint>& bad, Verify verify) {
  for (const CheckpointFolder& folder : folders) {
    try {
      return open_checkpoint(folder.path, verify);
    } catch (const Error& error) {
      bad.push_back({folder.path, error.what()});
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<CheckpointHandle> newest_valid(const fs::path& run, std::vector<BadCheckpoint>& bad, Verify verify) {
  return first_valid(list_folders(run), bad, verify);
}

std::optional<CheckpointHandle> best_checkpoint(const fs::path& run, std::vector<BadCheckpoint>& bad, Verify verify) {
  std::vector<CheckpointFolder> folders = list_folders(run);
  std::erase_if(folders, [](const CheckpointFolder& folder) { return !folder.name.best; });
  return first_valid(folders, bad, verify);
}

CheckpointHandle find_checkpoint(const fs::path& run_or_checkpoint, bool best) {
  std::error_code error;
  if (fs::exists(run_or_checkpoint / kManifestName, error)) return open_checkpoint(run_or_checkpoint);
  std::vector<BadCheckpoint> bad;
  const auto found = best ? best_checkpoint(run_or_checkpoint, bad) : newest_valid(run_or_checkpoint, bad);
  if (found) return *found;
  std::string seen = bad.empty() ? "none" : "";
  for (const BadCheckpoint& entry : bad) seen += fmt::format("{}{}: {}", seen.empty() ? "" : "\n", entry.folder.string(), entry.why);
  throw Error(bad.empty() ? ErrorKind::Data : ErrorKind::CorruptFile, best ? "no valid best checkpoint" : "no valid checkpoint")
      .at(run_or_checkpoint.string())
      .found(seen)
      .expected("a run folder with checkpoints/step-N, or a checkpoint folder");
}

std::vector<int64_t> checkpoint_steps(const fs::path& run) {
  std::vector<int64_t> steps;
  for (const CheckpointFolder& folder : list_folders(run))
    if (!folder.name.best) steps.push_back(folder.name.step);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

namespace {

// The former name is free at once, so that a crash in the middle leaves nothing that looks like a checkpoint.
void remove_folder(const fs::path& folder) {
  const fs::path aside = folder.string() + ".removed" + kTemporarySuffix;
  remove_tree(aside);
  rename_path(folder, aside);
  remove_tree(aside);
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return;
  const int reason = errno;
  if (reason != EPERM && reason != EXDEV && reason != EMLINK && reason != EOPNOTSUPP && reason != ENOSYS) throw_system_error(reason, "link to " + to.string(), from);
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) throw_system_error(error.value(), "copy to " + to.string(), from);
  sync_file(to);
}

}  // namespace

void keep_best(const fs::path& run, int64_t step) {
  const fs::path root = checkpoints_folder(run);
  const CheckpointHandle source = open_checkpoint(root / step_folder_name(step), Verify::Sizes);
  const fs::path kept = root / best_folder_name(step);
  const fs::path temporary = kept.string() + kTemporarySuffix;
  remove_tree(temporary);
  make_folders(temporary);
  std::vector<std::string> files{kManifestName};
  for (const FileEntry& file : source.manifest.files) files.push_back(file.path);
  for (const std::string& file : files) {
    make_folders((temporary / file).parent_path());
    link_or_copy(source.folder / file, temporary / file);
  }
  for (const auto& entry : fs::recursive_directory_iterator(temporary))
    if (entry.is_directory()) sync_folder(entry.path());
  sync_folder(temporary);
  if (fs::exists(kept)) remove_folder(kept);
  rename_path(temporary, kept);
  sync_folder(root);
  for (const CheckpointFolder& folder : list_folders(run))
    if (folder.name.best && folder.name.step != step) remove_folder(folder.path);
}

Pruned prune_checkpoints(const fs::path& run, int64_t keep) {
  BALLAST_CHECK(keep >= 1, "keep {}", keep);
  Pruned pruned;
  std::vector<fs::path> valid;
  for (const CheckpointFolder& folder : list_folders(run)) {
    if (folder.name.best) continue;
    try {
      open_checkpoint(folder.path, Verify::Sizes);
      valid.push_back(folder.path);
    } catch (const Error& error) {
      pruned.bad.push_back({folder.path, error.what()});
    }
  }
  if (static_cast<int64_t>(valid.size()) <= keep) return pruned;
  bool proven = false;
  for (int64_t i = 0; i < keep && !proven; ++i) {
    try {
      open_checkpoint(valid[static_cast<size_t>(i)], Verify::Content);
      proven = true;
    } catch (const Error& error) {
      pruned.bad.push_back({valid[static_cast<size_t>(i)], error.what()});
    }
  }
  if (!proven) return pruned;
  for (size_t i = static_cast<size_t>(keep); i < valid.size(); ++i) {
    remove_folder(valid[i]);
    pruned.removed.push_back(valid[i]);
  }
  return pruned;
}

std::vector<fs::path> remove_leftovers(const fs::path& run) {
  std::vector<fs::path> removed;
  const fs::path root = checkpoints_folder(run);
  if (!fs::exists(root)) return removed;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.path().filename().string().ends_with(kTemporarySuffix)) removed.push_back(entry.path());
  for (const fs::path& path : removed) remove_tree(path);
  return removed;
}

}  // namespace ballast
