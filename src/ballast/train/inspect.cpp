#include "ballast/train/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/units.h"
#include "ballast/checkpoint/bounded_json.h"
#include "ballast/checkpoint/checkpoint.h"
#include "ballast/data/foreign_store.h"
#include "ballast/data/tokenizer.h"
#include "ballast/model/model_folder.h"
#include "ballast/plan/model_shape.h"
#include "ballast/train/commands.h"
#include "ballast/train/inspect_parts.h"
#include "ballast/train/metrics.h"

namespace ballast {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Inspection begin_inspection(const char* kind, const fs::path& path) {
  Inspection result;
  result.json = {{"kind", kind}, {"path", path.string()}};
  result.text = fmt::format("{}  {}\n", kind, path.string());
  return result;
}

namespace {

Inspection of_checkpoint(const fs::path& path, bool verify) {
  const CheckpointHandle handle = open_checkpoint(path, verify ? Verify::Content : Verify::Sizes);
  Inspection result = begin_inspection("checkpoint", path);
  const CheckpointState& state = handle.state;
  Json files = Json::array();
  for (const FileEntry& file : handle.manifest.files) files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  result.json.update(Json{{"step", handle.step}, {"best", handle.best}, {"ranks", state.ranks}, {"topology", state.topology}, {"bytes", handle.bytes()},
                          {"seed", state.seed}, {"config_fingerprint", state.config_fingerprint}, {"layout_fingerprint", state.layout_fingerprint},
                          {"cursor", state.cursor}, {"schedule", state.schedule}, {"metrics", state.metrics}, {"files", files}, {"verified", verify}});
  result.text += fmt::format("  step {}, written by {} ranks, {}{}\n", handle.step, state.ranks, printable(state.topology), handle.best ? ", kept as the best" : "");
  for (const FileEntry& file : handle.manifest.files) result.text += fmt::format("  {:>10}  {}  {}\n", format_bytes(file.bytes), file.xxh3, file.path);
  result.text += fmt::format("  {} in {} files; {}\n", format_bytes(handle.bytes()), handle.manifest.files.size(),
                             verify ? "every byte agrees with the manifest" : "names and sizes agree with the manifest (--verify reads the content)");
  return result;
}

void describe_config(const ModelConfig& config, Inspection& result) {
  const ModelShape shape = describe(config);
  result.json.update(Json{{"model_type", config.model_type}, {"parameters", shape.parameters()}, {"layers", config.layers}, {"hidden", config.hidden},
                          {"heads", config.heads}, {"kv_heads", config.kv_heads}, {"vocab_size", config.vocab_size}, {"max_positions", config.max_positions},
                          {"verified", false}});
  result.text += fmt::format("  {}: {} parameters, {} layers of {}, {} heads ({} of keys), vocabulary {}, {} positions\n", config.model_type,
                             format_count(shape.parameters()), config.layers, config.hidden, config.heads, config.kv_heads, config.vocab_size, config.max_positions);
}

// A tokenizer beside a model is shown with it; one that cannot be read does not hide the model.
void add_tokenizer(const fs::path& folder, Inspection& result) {
  if (tokenizer_files(folder).empty()) {
    result.json["tokenizer"] = nullptr;
    result.text += "  no tokenizer beside it\n";
    return;
  }
  try {
    const Inspection tokenizer = inspect_tokenizer(folder);
    result.json["tokenizer"] = tokenizer.json;
    result.text += tokenizer.text;
  } catch (const Error& error) {
    result.json["tokenizer"] = {{"error", error.what()}};
    result.text += fmt::format("  its tokenizer cannot be used: {}\n", error.what());
  }
}

Inspection of_model(const fs::path& path) {
  Inspection result = begin_inspection("model", path);
  describe_config(ModelFolder::open(path).config(), result);
  result.text += "  config.json and weights agree in every name and shape; the format keeps no hashes of the content\n";
  add_tokenizer(path, result);
  return result;
}

Inspection of_config(const fs::path& file) {
  Inspection result = begin_inspection("model configuration", file);
  describe_config(read_hf_config(file), result);
  result.text += "  an architecture without weights: for model.config; model.path takes a folder with weights\n";
  return result;
}

// Whether a JSON file describes a model, a tokenizer or something else, by the keys that each must have.
Inspection of_json(const fs::path& path) {
  if (path.filename() == "vocab.json") return inspect_tokenizer(path);
  const auto json = parse_bounded_json(read_file(path));
  if (path.filename() == "config.json" || (json.is_object() && json.contains("model_type"))) return of_config(path);
  const bool has_model = json.is_object() && json.contains("model") && json["model"].is_object();
  if (has_model || path.filename() == "tokenizer.json") return inspect_tokenizer(path);
  throw Error(ErrorKind::Data, "a JSON file that inspect does not know")
      .at(path.string())
      .expected("config.json of a model (key model_type), tokenizer.json or vocab.json")
      .cure("name the folder that it lies in");
}

Inspection of_safetensors(const fs::path& path) {
  const SafetensorsSet set = SafetensorsSet::open_file(path);
  Inspection result = begin_inspection("safetensors", path);
  Json tensors = Json::object();
  int64_t bytes = 0;
  for (const auto& [name, tensor] : set.tensors()) {
    tensors[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"bytes", tensor.bytes}};
    bytes += tensor.bytes;
    result.text += fmt::format("  {:>10}  {:4}  [{}]  {}\n", format_bytes(tensor.bytes), tensor.dtype, fmt::join(tensor.shape, ", "), printable(name, 200));
  }
  result.json.update(Json{{"tensors", tensors}, {"metadata", set.metadata()}, {"bytes", bytes}, {"verified", false}});
  result.text += fmt::format("  {} in {} tensors; the header is valid, the format keeps no hashes of the content\n", format_bytes(bytes), set.tensors().size());
  return result;
}

Inspection of_metrics(const fs::path& path) {
  const MetricsFile metrics = read_metrics(path);
  const auto steps = metrics.steps();
  const auto evaluations = metrics.evaluations();
  Inspection result = begin_inspection("metrics", path);
  result.json.update(Json{{"steps", steps.size()}, {"evaluations", evaluations.size()}, {"torn", !metrics.torn.empty()}, {"verified", true}});
  result.text += fmt::format("  {} steps, {} evaluations{}\n", steps.size(), evaluations.size(), metrics.torn.empty() ? "" : "; the last line is torn");
  if (!steps.empty()) {
    result.json["last"] = Json::parse(to_json_line(steps.back()));
    result.text += fmt::format("  step {}: loss {:.4f}\n", steps.back().step, steps.back().loss);
  }
  if (!evaluations.empty()) {
    result.json["last_eval"] = Json::parse(to_json_line(evaluations.back()));
    result.text += fmt::format("  step {}: eval loss {:.4f}\n", evaluations.back().step, evaluations.back().eval_loss);
  }
  return result;
}

// A line of metrics is an object with a step; a .jsonl file may as well hold records.
bool looks_like_metrics(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line(4096, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  line.resize(std::min(line.size(), line.find('\n')));
  const size_t start = line.find_first_not_of(" \t");
  return line.empty() || (start != std::string::npos && line[start] == '{' && line.find("\"step\"") != std::string::npos);
}

Inspection of_run(const fs::path& path, bool verify) {
  Inspection result = begin_inspection("run", path);
  std::error_code error;
  if (fs::exists(path / "metrics.jsonl", error)) {
    const Inspection metrics = of_metrics(path / "metrics.jsonl");
    result.json["metrics"] = metrics.json;
    result.text += metrics.text;
  }
  std::vector<BadCheckpoint> bad;
  const auto newest = newest_valid(path, bad, verify ? Verify::Content : Verify::Sizes);
  const auto best = best_checkpoint(path, bad, verify ? Verify::Content : Verify::Sizes);
  result.json["checkpoints"] = checkpoint_steps(path);
  result.json["newest_valid"] = newest ? Json(newest->folder.filename().string()) : Json(nullptr);
  result.json["best"] = best ? Json(best->folder.filename().string()) : Json(nullptr);
  Json damaged = Json::array();
  for (const BadCheckpoint& entry : bad) damaged.push_back({{"folder", entry.folder.filename().string()}, {"why", entry.why}});
  result.json["damaged"] = damaged;
  result.json["verified"] = verify;
  result.text += fmt::format("  checkpoints at steps {}\n", fmt::join(checkpoint_steps(path), ", "));
  result.text += fmt::format("  newest valid: {}\n  best: {}\n", newest ? newest->folder.filename().string() : "none", best ? best->folder.filename().string() : "none");
  for (const BadCheckpoint& entry : bad) result.text += fmt::format("  damaged: {}\n{}\n", entry.folder.filename().string(), entry.why);
  return result;
}

}  // namespace

Inspection inspect(const fs::path& path, bool verify) {
  std::error_code error;
  const auto there = [&](const char* name) { return fs::exists(path / name, error); };
  if (fs::is_directory(path, error)) {
    if (there(kManifestName) || path.filename().string().starts_with("step-")) return of_checkpoint(path, verify);
    if (there("checkpoints") || there("metrics.jsonl")) return of_run(path, verify);
    const bool weights = there("model.safetensors") || there("model.safetensors.index.json");
    if (there("config.json")) return weights ? of_model(path) : of_config(path / "config.json");
    if (!tokenizer_files(path).empty()) return inspect_tokenizer(path);
  } else if (fs::exists(path, error)) {
    const std::string extension = path.extension().string();
    if (extension == ".safetensors") return of_safetensors(path);
    if (extension == ".jsonl" && looks_like_metrics(path)) return of_metrics(path);
    if (extension == ".store") return inspect_store(path, verify);
    if (is_foreign(path.string())) return inspect_foreign(path, verify);
    if (extension == ".model" || extension == ".tiktoken" || path.filename() == "merges.txt") return inspect_tokenizer(path);
    if (path.filename() == kManifestName) return of_checkpoint(path.has_parent_path() ? path.parent_path() : fs::path("."), verify);
    if (extension == ".json") return of_json(path);
  } else {
    throw Error(ErrorKind::Data, "no such file or folder")
        .at(path.string())
        .cure("check the path; relative ones start at the working folder");
  }
  throw Error(ErrorKind::Data, "nothing that inspect knows")
      .at(path.string())
      .expected("a run folder, a checkpoint, a model folder or its config.json, a tokenizer (folder or file), a .safetensors "
                "file, a .store file, a .bin or .idx file of tokens, or a metrics .jsonl file")
      .cure(fs::is_directory(path, error) ? "name one of the files or folders in it"
                                          : "for data files, use ballast data prepare and inspect the store");
}

int run_inspect(const InspectOptions& options) {
  const Inspection result = inspect(options.path, options.verify);
  const std::string text = options.json ? result.json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : result.text;
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace ballast
