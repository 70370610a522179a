#include "ballast/checkpoint/writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/output_file.h"
#include "ballast/checkpoint/bounded_json.h"
#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/folders.h"
#include "ballast/checkpoint/load.h"
#include "ballast/model/safetensors_writer.h"

namespace ballast {

namespace fs = std::filesystem;

CheckpointWriter::CheckpointWriter(fs::path run, int64_t step, int64_t rank, int64_t ranks)
    : run_(std::move(run)),
      temporary_(checkpoints_folder(run_) / (step_folder_name(step) + kTemporarySuffix)),
      step_(step),
      rank_(rank),
      ranks_(ranks) {
  BALLAST_CHECK(step >= 0 && rank >= 0 && rank < ranks && ranks <= 99999, "step {}, rank {} of {}", step, rank, ranks);
  if (rank_ != 0) return;
  remove_tree(temporary_);
  make_folders(model_folder());
}

CheckpointWriter::~CheckpointWriter() {
  if (rank_ != 0 || committed_) return;
  std::error_code ignored;  // what stays is removed by the next write or start
  fs::remove_all(temporary_, ignored);
}

void CheckpointWriter::add(StateItem item) {
  BALLAST_CHECK(!finished_, "add after finish_rank");
  BALLAST_CHECK(!item.state.empty() && item.state.find('/') == std::string::npos, "state '{}'", item.state);
  BALLAST_CHECK(0 <= item.begin && item.begin <= item.end && item.data.numel() == item.end - item.begin, "{} holds {} elements",
                item_name(item), item.data.numel());
  BALLAST_CHECK(item.data.device().is_cpu() && item.data.is_contiguous(), "{}", item_name(item));
  items_.push_back(std::move(item));
}

std::string CheckpointWriter::finish_rank() {
  BALLAST_CHECK(!finished_, "finish_rank twice");
  finished_ = true;
  const std::string name = shard_file_name(rank_, ranks_);
  std::vector<TensorToWrite> header;
  for (const StateItem& item : items_)
    header.push_back({item_name(item), stored_dtype(item.data.scalar_type()), {item.end - item.begin}});
  SafetensorsWriter writer(temporary_ / name, header,
                           {{"format", "ballast-state"}, {"step", std::to_string(step_)}, {"rank", std::to_string(rank_)}, {"ranks", std::to_string(ranks_)}});
  for (const StateItem& item : items_)
    if (item.data.nbytes() > 0) writer.write(item_name(item), item.data.const_data_ptr(), static_cast<int64_t>(item.data.nbytes()));
  writer.finish();
  items_.clear();
  const FileEntry entry = describe_file(temporary_, name);
  return nlohmann::json{{"path", entry.path}, {"bytes", entry.bytes}, {"xxh3", entry.xxh3}}.dump();
}

fs::path CheckpointWriter::commit(const CheckpointState& state, const std::vector<std::string>& shards) {
  BALLAST_CHECK(rank_ == 0 && finished_ && !committed_, "commit by rank {}", rank_);
  BALLAST_CHECK(state.step == step_ && state.ranks == ranks_, "state of step {}, {} ranks", state.step, state.ranks);
  BALLAST_CHECK(static_cast<int64_t>(shards.size()) == ranks_, "{} shards of {} ranks", shards.size(), ranks_);
  write_aside(temporary_ / "state.json", state_text(state));

  Manifest manifest;
  manifest.step = step_;
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    const nlohmann::json shard = parse_bounded_json(shards[static_cast<size_t>(rank)]);
    BALLAST_CHECK(shard.is_object() && shard.value("path", "") == shard_file_name(rank, ranks_), "shard text of rank {}: {}", rank,
                  shards[static_cast<size_t>(rank)]);
    const FileEntry entry{shard.at("path").get<std::string>(), shard.at("bytes").get<int64_t>(), shard.at("xxh3").get<std::string>()};
    std::error_code error;
    if (static_cast<int64_t>(fs::file_size(temporary_ / entry.path, error)) != entry.bytes || error)
      throw Error(ErrorKind::Environment, "the shard of a rank is not in the checkpoint folder as rank 0 sees it")
          .at((temporary_ / entry.path).string())
          .found(error ? error.message() : "another size")
          .expected(fmt::format("{} bytes", entry.bytes))
          .cure("put run.dir on a file system that all ranks share");
    manifest.files.push_back(entry);
  }
  // The model's files come from other code: synced here, so that nothing is named before it is durable.
  std::vector<std::string> others{"state.json"};
  std::vector<fs::path> folders{temporary_};
  for (const auto& entry : fs::recursive_directory_iterator(model_folder())) {
    if (entry.is_directory()) {
      folders.push_back(entry.path());
    } else {
      sync_file(entry.path());
      others.push_back(entry.path().lexically_relative(temporary_).generic_string());
    }
  }
  folders.push_back(model_folder());
  for (const std::string& path : others) manifest.files.push_back(describe_file(temporary_, path));
  std::sort(manifest.files.begin(), manifest.files.end(), [](const FileEntry& a, const FileEntry& b) { return a.path < b.path; });
  write_aside(temporary_ / kManifestName, manifest_text(manifest));
  for (const fs::path& folder : folders) sync_folder(folder);

  const fs::path root = checkpoints_folder(run_), final_folder = root / step_folder_name(step_);
  const fs::path replaced = final_folder.string() + ".replaced" + kTemporarySuffix;
  remove_tree(replaced);
  if (fs::exists(fs::symlink_status(final_folder))) rename_path(final_folder, replaced);
  rename_path(temporary_, final_folder);
  committed_ = true;
  sync_folder(root);
  remove_tree(replaced);
  return final_folder;
}

}  // namespace ballast
