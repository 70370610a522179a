// ballast train, report, export.
#include <fmt/format.h>

#include <iostream>

#include "ballast/model/model_writer.h"
#include "ballast/train/commands.h"
#include "ballast/train/process.h"
#include "ballast/train/report.h"
#include "ballast/train/run_folder.h"
#include "ballast/train/setup.h"
#include "ballast/train/trainer.h"
#include "ballast/train/weights_source.h"

namespace ballast {

namespace {

// What every rank would refuse, and the stores that one of them would prepare while the others wait.
void check_run(const RunConfig& config, const Topology& topology) {
  const auto tokenizer = need_tokenizer(config);
  const ModelSource model = open_model(config, tokenizer.get());
  check_storable(config, model);
  make_recipe(config, model.config, topology);
  layout_limits(config, model.config, topology);
  check_samples(config, topology, *open_data_of(config, DataUse::Train, *tokenizer, model.config, false));
  if (!config.data.eval.empty()) open_data_of(config, DataUse::Eval, *tokenizer, model.config, false);
}

}  // namespace

int run_train(const TrainOptions& options) {
  RunConfig config = load_run_config(options.config.path, options.config.overrides);
  // Said once, before any rank is started.
  require(config, {Needs::Model, Needs::TrainData, Needs::RunFolder, Needs::Length});
  check_run_folder(config, options.resume);
  return on_ranks(config, options.config.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    try {
      Trainer trainer(config, topology, communicator, {options.resume, options.trace, threads});
      return trainer.run();
    } catch (const SaidByRankZero& refusal) {
      return refusal.exit_code;
    }
  }, [&](const Topology& topology) { check_run(config, topology); });
}

int run_report(const ReportOptions& options) {
  const std::filesystem::path path = options.output.empty() ? write_report(options.run) : write_report(options.run, options.output);
  std::cout << path.string() << "\n";
  return 0;
}

int run_export(const ExportOptions& options) {
  const WeightsSource source = open_weights(options.run, options.checkpoint);
  const ModelFolder folder = ModelFolder::open(source.folder);
  const ModelShape shape = describe(folder.config());
  ModelWriterOptions writer_options;
  writer_options.storage = options.precision == "bf16" ? DType::BFloat16 : DType::Float32;
  writer_options.token_ids = folder.token_ids();
  const std::vector<std::filesystem::path> files = tokenizer_files(source.folder);
  writer_options.tokenizer = named_for_model(files.empty() ? source.tokenizer()->files() : files);
  ModelWriter writer(options.to, shape, writer_options);
  std::vector<float> flat;
  for (const ParameterGroup& group : shape.groups) {
    flat.resize(static_cast<size_t>(group.numel));
    folder.load_group(group, flat.data());
    writer.write_group(group, flat.data());
  }
  writer.finish();
  std::cout << fmt::format("{} (step {}, {})\n", options.to, source.step, options.precision);
  return 0;
}

}  // namespace ballast
