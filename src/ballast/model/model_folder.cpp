#include "ballast/model/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"

namespace ballast {

namespace {

bool ends_with(const std::string& text, const std::string& end) { return text.ends_with(end); }

// Constants that older versions of transformers stored among the weights.
bool is_known_buffer(const std::string& name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, "rotary_emb.inv_freq");
}

std::string without_base(const std::string& name) {
  for (const std::string base : {"transformer.", "model."})
    if (name.starts_with(base)) return name.substr(base.size());
  return name;
}

// The first few of a list, so that a wrong model gives a message and not a page.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<int64_t>(std::min(names.size(), kShown)));
  const std::string rest = names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

SafetensorsSet open_weights(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "model.safetensors"))
    return SafetensorsSet::open_file(folder / "model.safetensors");
  if (std::filesystem::exists(folder / "model.safetensors.index.json"))
    return SafetensorsSet::open_index(folder / "model.safetensors.index.json");
  throw Error(ErrorKind::Data, "the folder holds no safetensors weights")
      .at(folder.string())
      .expected("model.safetensors, or model.safetensors.index.json with its shards")
      .cure("convert other formats with transformers: model.save_pretrained(FOLDER)");
}

}  // namespace

ModelFolder ModelFolder::open(const std::filesystem::path& folder) {
  ModelFolder model;
  model.path_ = folder;
  const std::filesystem::path config_file = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(config_file, ignored))
    throw Error(ErrorKind::Data, "the folder is no model: it has no config.json")
        .at(config_file.string())
        .expected("a folder with config.json and model.safetensors")
        .cure("check the path; inside a run, a model is CHECKPOINT/model");
  const std::string text = read_file(config_file);
  model.config_ = parse_hf_config(text, config_file.string());
  model.config_.name = folder.string();
  model.ids_ = parse_hf_token_ids(text, config_file.string());
  model.weights_ = open_weights(folder);
  model.check(describe(model.config_));
  return model;
}

void ModelFolder::check(const ModelShape& shape) {
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string> used;
  std::string embedding;
  for (const ParameterGroup& group : shape.groups) {
    for (const ParameterTensor& tensor : group.tensors) {
      std::string name = tensor.name;
      if (!weights_.find(name)) name = without_base(name);
      const StoredTensor* stored = weights_.find(name);
      if (!stored) {
        missing.push_back(tensor.name);
        continue;
      }
      if (stored->shape != tensor.shape)
        misshapen.push_back(fmt::format("{} [{}] instead of [{}]", name, fmt::join(stored->shape, ", "),
                                        fmt::join(tensor.shape, ", ")));
      used.insert(name);
      stored_name_[tensor.name] = name;
      if (tensor.role == Role::TokenEmbedding) embedding = name;
    }
  }
  const StoredTensor* table = weights_.find(embedding);
  for (const auto& [name, tensor] : weights_.tensors()) {
    if (used.contains(name) || is_known_buffer(name)) continue;
    if (name == "lm_head.weight" && config_.tied_head && table) {
      const bool same =
          tensor.dtype == table->dtype && tensor.shape == table->shape &&
          (tensor.bytes == 0 || std::memcmp(tensor.data, table->data, static_cast<size_t>(tensor.bytes)) == 0);
      if (!same)
        throw Error(ErrorKind::CorruptFile, "the head is tied to the embedding, but the files store another one")
            .at(weights_.file_of(name), "tensor 'lm_head.weight'")
            .expected(fmt::format("the same bytes as '{}', or no such tensor", embedding))
            .cure("set tie_word_embeddings to false in config.json if the two are meant to differ");
      continue;
    }
    extra.push_back(printable(name));
  }
  if (missing.empty() && misshapen.empty() && extra.empty()) return;
  std::vector<std::string> found;
  if (!missing.empty()) found.push_back(fmt::format("missing: {}", listed(missing)));
  if (!misshapen.empty()) found.push_back(fmt::format("of another shape: {}", listed(misshapen)));
  if (!extra.empty()) found.push_back(fmt::format("not of this architecture: {}", listed(extra)));
  throw Error(ErrorKind::CorruptFile, "the weights do not fit config.json")
      .at(path_.string())
      .found(fmt::format("{}", fmt::join(found, "; ")))
      .expected(
          fmt::format("the tensors of a {} of {} layers x {}", config_.model_type, config_.layers, config_.hidden))
      .cure("use the config.json that was saved with these weights");
}

// One NaN among the weights makes every loss NaN: whoever reads them is told which, not what follows from it.
void ModelFolder::require_finite(const std::string& name, int64_t first, std::span<const float> values) const {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t bad = first_nonfinite(values.data(), count);
  if (bad == count) return;
  throw Error(ErrorKind::CorruptFile, fmt::format("a weight of tensor '{}' is not finite", printable(name)))
      .at(weights_.file_of(name), fmt::format("tensor '{}', element {}", printable(name), first + bad))
      .found(fmt::format("{}", values[static_cast<size_t>(bad)]))
      .expected("finite weights")
      .cure("take an earlier checkpoint or another copy: a run that had diverged saved this one, or its bytes are damaged");
}

void ModelFolder::load_range(const ParameterGroup& group, int64_t begin, int64_t end, float* out) const {
  BALLAST_CHECK(0 <= begin && begin <= end && end <= group.numel, "[{}, {}) of {}", begin, end, group.numel);
  int64_t done = begin;
  for (const ParameterTensor& tensor : group.tensors) {
    const int64_t first = std::max(begin, tensor.offset), last = std::min(end, tensor.offset + tensor.numel());
    if (first >= last) continue;
    std::fill(out + (done - begin), out + (first - begin), 0.0f);
    const auto name = stored_name_.find(tensor.name);
    BALLAST_CHECK(name != stored_name_.end(), "tensor '{}'", tensor.name);
    read_as_float(*weights_.find(name->second), name->second, first - tensor.offset, last - first,
                  out + (first - begin));
    require_finite(name->second, first - tensor.offset, {out + (first - begin), static_cast<size_t>(last - first)});
    done = last;
  }
  std::fill(out + (done - begin), out + (end - begin), 0.0f);
}

}  // namespace ballast
