// ballast train, report, export, inspect.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/checkpoint/inspect.h"
#include "ballast/data/token_store.h"
#include "ballast/model/model_writer.h"
#include "ballast/train/commands.h"
#include "ballast/train/process.h"
#include "ballast/train/report.h"
#include "ballast/train/run_folder.h"
#include "ballast/train/trainer.h"

namespace ballast {

int run_train(const TrainOptions& options) {
  RunConfig config = load_run_config(options.config.path, options.config.overrides);
  // Said once, before any rank is started.
  require(config, {Needs::Model, Needs::TrainData, Needs::RunFolder, Needs::Length});
  check_run_folder(config, options.resume);
  return on_ranks(config, options.config.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    Trainer trainer(config, topology, communicator, {options.resume, options.trace, threads});
    return trainer.run();
  });
}

int run_report(const ReportOptions& options) {
  const std::filesystem::path path = options.output.empty() ? write_report(options.run) : write_report(options.run, options.output);
  std::cout << path.string() << "\n";
  return 0;
}

int run_export(const ExportOptions& options) {
  const std::filesystem::path run = options.run;
  if (!is_run_folder(run)) throw Error(ErrorKind::Data, "this is no run folder").at(options.run).expected("a folder with config.yaml and metrics.jsonl");
  const CheckpointHandle checkpoint = [&] {
    if (options.checkpoint == "newest") return find_checkpoint(run);
    if (options.checkpoint == "best") {
      std::vector<BadCheckpoint> bad;
      const std::optional<CheckpointHandle> best = best_checkpoint(run, bad);
      return best ? *best : find_checkpoint(run);
    }
    int64_t step = 0;
    const auto [end, error] = std::from_chars(options.checkpoint.data(), options.checkpoint.data() + options.checkpoint.size(), step);
    if (error != std::errc() || end != options.checkpoint.data() + options.checkpoint.size()) {
      throw Error(ErrorKind::Usage, "no such checkpoint name").at("--checkpoint").found(printable(options.checkpoint)).expected("best, newest or a step");
    }
    return open_checkpoint(checkpoints_folder(run) / step_folder_name(step));
  }();
  const ModelFolder folder = ModelFolder::open(checkpoint.model_folder());
  const ModelShape shape = describe(folder.config());
  ModelWriterOptions writer_options;
  writer_options.storage = options.precision == "bf16" ? DType::BFloat16 : DType::Float32;
  writer_options.token_ids = folder.token_ids();
  writer_options.tokenizer = checkpoint.model_folder();
  ModelWriter writer(options.to, shape, writer_options);
  std::vector<float> flat;
  for (const ParameterGroup& group : shape.groups) {
    flat.resize(static_cast<size_t>(group.numel));
    folder.load_group(group, flat.data());
    writer.write_group(group, flat.data());
  }
  writer.finish();
  std::cout << fmt::format("{} (step {}, {})\n", options.to, checkpoint.step, options.precision);
  return 0;
}

}  // namespace ballast
