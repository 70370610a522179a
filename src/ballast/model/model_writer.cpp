#include "ballast/model/model_writer.h"

#include <c10/util/BFloat16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"

namespace ballast {

namespace {

constexpr int64_t kChunk = int64_t{1} << 20;  // elements converted at once

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

}  // namespace

ModelWriter::ModelWriter(std::filesystem::path folder, const ModelShape& shape, ModelWriterOptions options)
    : folder_(std::move(folder)), config_(shape.config), options_(std::move(options)) {
  if (folder_.filename().empty()) folder_ = folder_.parent_path();  // "a/b/" is "a/b"
  partial_ = folder_.string() + ".partial";
  BALLAST_CHECK(options_.storage == DType::Float32 || options_.storage == DType::BFloat16, "storage {}",
                name_of(options_.storage));
  write_hf_config(config_, options_.token_ids, options_.storage);  // refuse before anything is written
  std::error_code fault;
  if (std::filesystem::exists(folder_, fault) && !std::filesystem::is_empty(folder_, fault))
    throw Error(ErrorKind::Usage, "the folder to write to is not empty")
        .at(folder_.string())
        .cure("name a new folder, or remove it");
  std::filesystem::remove_all(partial_, fault);
  std::filesystem::create_directories(partial_, fault);
  if (fault)
    throw Error(ErrorKind::Environment, "cannot create the model folder").at(partial_.string()).found(fault.message());

  std::vector<std::vector<TensorToWrite>> shards(1);
  int64_t used = 0;
  for (const ParameterGroup& group : shape.groups) {
    for (const ParameterTensor& tensor : group.tensors) {
      const int64_t bytes = tensor.numel() * size_of(options_.storage);
      if (used > 0 && used + bytes > options_.largest_shard) {
        shards.emplace_back();
        used = 0;
      }
      used += bytes;
      total_bytes_ += bytes;
      shard_of_[tensor.name] = shards.size() - 1;
      shards.back().push_back({tensor.name, options_.storage == DType::BFloat16 ? "BF16" : "F32", tensor.shape});
    }
  }
  try {
    for (size_t index = 0; index < shards.size(); ++index)
      shards_.push_back(
          std::make_unique<SafetensorsWriter>(partial_ / shard_name(index, shards.size()), shards[index]));
  } catch (...) {
    shards_.clear();
    std::filesystem::remove_all(partial_, fault);
    throw;
  }
}

ModelWriter::~ModelWriter() {
  if (finished_) return;
  shards_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(partial_, ignored);
}

void ModelWriter::write_range(const ParameterGroup& group, int64_t begin, int64_t count, const float* values) {
  BALLAST_CHECK(begin >= 0 && count >= 0 && begin + count <= group.numel, "[{}, +{}) of {}", begin, count, group.numel);
  std::vector<c10::BFloat16> rounded;
  for (const ParameterTensor& tensor : group.tensors) {
    const int64_t first = std::max(begin, tensor.offset),
                  last = std::min(begin + count, tensor.offset + tensor.numel());
    SafetensorsWriter& shard = *shards_.at(shard_of_.at(tensor.name));
    for (int64_t at = first; at < last; at += kChunk) {
      const int64_t size = std::min(kChunk, last - at);
      const float* from = values + (at - begin);
      if (options_.storage == DType::Float32) {
        shard.write(tensor.name, from, size * 4, (at - tensor.offset) * 4);
      } else {
        rounded.assign(from, from + size);
        shard.write(tensor.name, rounded.data(), size * 2, (at - tensor.offset) * 2);
      }
    }
  }
}

void ModelWriter::write_text(const std::string& name, const std::string& text) { write_aside(partial_ / name, text); }

void ModelWriter::copy_tokenizer() {
  for (const auto& [name, file] : options_.tokenizer) {
    std::error_code fault;
    std::filesystem::copy_file(file, partial_ / name, fault);
    if (fault)
      throw Error(ErrorKind::Environment, "cannot copy a tokenizer file")
          .at(file.string())
          .found(fault.message())
          .cure("leave the tokenizer where the run found it until the run ends");
  }
}

void ModelWriter::finish() {
  for (const auto& shard : shards_) shard->finish();
  if (shards_.size() > 1) {
    nlohmann::ordered_json index;
    index["metadata"]["total_size"] = total_bytes_;
    for (const auto& [name, shard] : shard_of_) index["weight_map"][name] = shard_name(shard, shards_.size());
    write_text("model.safetensors.index.json", index.dump(2) + "\n");
  }
  const nlohmann::ordered_json config = write_hf_config(config_, options_.token_ids, options_.storage);
  write_text("config.json", config.dump(2) + "\n");
  nlohmann::ordered_json generation;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (!config[key].is_null()) generation[key] = config[key];
  generation["_from_model_config"] = true;
  write_text("generation_config.json", generation.dump(2) + "\n");
  copy_tokenizer();
  if (std::rename(partial_.c_str(), folder_.c_str()) != 0)
    throw Error(ErrorKind::Environment, "cannot put the model folder in place")
        .at(folder_.string())
        .found(errno_text(errno));
  finished_ = true;
  sync_folder(folder_.has_parent_path() ? folder_.parent_path() : ".");
}

}  // namespace ballast
