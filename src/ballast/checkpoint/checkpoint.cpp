#include "ballast/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/output_file.h"
#include "ballast/checkpoint/folders.h"

namespace ballast {

namespace fs = std::filesystem;

namespace {
constexpr int64_t kLargestJson = int64_t{64} << 20;

Error corrupt(const fs::path& file, const std::string& what) {
  return Error(ErrorKind::CorruptFile, what).at(file.string());
}

// All regular files below a folder, relative, sorted; hidden names (.nfs..., .DS_Store) are the file system's own.
std::set<std::string> files_below(const fs::path& folder) {
  std::set<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(".")) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_directory(error) || entry->is_symlink(error)) files.insert(entry->path().lexically_relative(folder).generic_string());
  }
  if (error) throw_system_error(error.value(), "list the folder", folder);
  return files;
}

void check_file(const fs::path& folder, const FileEntry& expected, Verify verify) {
  const fs::path file = folder / expected.path;
  std::error_code error;
  const auto status = fs::symlink_status(file, error);
  if (status.type() == fs::file_type::not_found) throw corrupt(file, "a file of the checkpoint is missing");
  if (error) throw_system_error(error.value(), "look at", file);
  if (status.type() != fs::file_type::regular) throw corrupt(file, "a file of the checkpoint is no regular file");
  const auto bytes = static_cast<int64_t>(fs::file_size(file, error));
  if (error) throw_system_error(error.value(), "look at", file);
  if (bytes != expected.bytes)
    throw corrupt(file, bytes < expected.bytes ? "a file of the checkpoint is truncated" : "a file of the checkpoint has grown")
        .found(fmt::format("{} bytes", bytes))
        .expected(fmt::format("{} bytes", expected.bytes));
  if (verify == Verify::Sizes) return;
  const FileEntry found = describe_file(folder, expected.path);
  if (found != expected)
    throw corrupt(file, "the content of a checkpoint file has changed")
        .found(fmt::format("xxh3 {}, {} bytes", found.xxh3, found.bytes))
        .expected(fmt::format("xxh3 {}, {} bytes", expected.xxh3, expected.bytes));
}

}  // namespace

fs::path checkpoints_folder(const fs::path& run) { return run / "checkpoints"; }
std::string step_folder_name(int64_t step) { return fmt::format("step-{:08}", step); }
std::string best_folder_name(int64_t step) { return "best-" + step_folder_name(step); }
std::string shard_file_name(int64_t rank, int64_t ranks) { return fmt::format("state-{:05}-of-{:05}.safetensors", rank, ranks); }

int64_t CheckpointHandle::bytes() const {
  int64_t sum = 0;
  for (const FileEntry& file : manifest.files) sum += file.bytes;
  return sum;
}

void CheckpointHandle::require_layout(int64_t ranks, const std::string& layout_fingerprint) const {
  if (ranks != state.ranks)
    throw Error(ErrorKind::Usage, "the checkpoint was written by another number of ranks, and resharding is not there yet")
        .at(folder.string())
        .found(fmt::format("{} ranks, topology {}", state.ranks, state.topology))
        .expected(fmt::format("{} ranks", ranks))
        .cure(fmt::format("resume with {} ranks, or start a new run from the weights in {}", state.ranks, model_folder().string()));
  if (layout_fingerprint != state.layout_fingerprint)
    throw Error(ErrorKind::Usage, "the checkpoint was cut by another topology or placement, and resharding is not there yet")
        .at(folder.string())
        .found(fmt::format("layout {}, topology {}", state.layout_fingerprint, state.topology))
        .expected(fmt::format("layout {}", layout_fingerprint))
        .cure(fmt::format("resume with the topology and placement of the run, or start a new run from the weights in {}",
                          model_folder().string()));
}

CheckpointHandle open_checkpoint(const fs::path& folder, Verify verify) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorKind::Data, "no such checkpoint").at(folder.string()).expected("a folder like RUN/checkpoints/step-00000050");
  const fs::path manifest_file = folder / kManifestName;
  if (fs::symlink_status(manifest_file, error).type() == fs::file_type::not_found)
    throw Error(ErrorKind::Data, "the folder has no manifest: it was never finished, or is no checkpoint")
        .at(folder.string())
        .expected(kManifestName);
  CheckpointHandle handle;
  handle.folder = folder;
  handle.manifest = parse_manifest(read_file(manifest_file, {kLargestJson, ErrorKind::CorruptFile}), manifest_file.string());
  handle.step = handle.manifest.step;
  const std::optional<FolderName> name = parse_folder_name(folder.filename().string());
  handle.best = name && name->best;
  if (name && name->step != handle.step)
    throw corrupt(folder, "the folder's name and its manifest disagree about the step")
        .found(fmt::format("step {}", handle.step))
        .expected(fmt::format("step {}", name->step));

  std::set<std::string> present = files_below(folder);
  present.erase(kManifestName);
  for (const FileEntry& file : handle.manifest.files) {
    check_file(folder, file, verify);
    present.erase(file.path);
  }
  if (!present.empty())
    throw corrupt(folder / *present.begin(), "the checkpoint holds a file that its manifest does not list")
        .cure("move it elsewhere if it was put there by hand");

  handle.state = parse_state(read_file(folder / "state.json", {kLargestJson, ErrorKind::CorruptFile}), (folder / "state.json").string());
  if (handle.state.step != handle.step)
    throw corrupt(folder / "state.json", "the state is of another step")
        .found(fmt::format("step {}", handle.state.step))
        .expected(fmt::format("step {}", handle.step));
  std::set<std::string> listed;
  for (const FileEntry& file : handle.manifest.files) listed.insert(file.path);
  for (int64_t rank = 0; rank < handle.state.ranks; ++rank)
    if (!listed.contains(shard_file_name(rank, handle.state.ranks)))
      throw corrupt(folder / shard_file_name(rank, handle.state.ranks), "the checkpoint lacks the shard of a rank");
  return handle;
}

}  // namespace ballast
