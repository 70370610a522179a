// What a trainer does before its first step: opens everything, agrees with the other ranks, goes on from a checkpoint, and says what will run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/base/units.h"
#include "ballast/comm/agreement.h"
#include "ballast/train/banner.h"
#include "ballast/train/checkpoint_io.h"
#include "ballast/train/trainer.h"

namespace ballast {

Trainer::Trainer(RunConfig config, const Topology& topology, Communicator& communicator, TrainerOptions options)
    : config_(std::move(config)), topology_(topology), communicator_(communicator), options_(std::move(options)) {
  BALLAST_CHECK(topology_.level_count() <= 16, "{} levels", topology_.level_count());
  require(config_, {Needs::Model, Needs::TrainData, Needs::RunFolder, Needs::Length});
  check_run_folder(config_, options_.resume);
  tokenizer_ = need_tokenizer(config_);
  model_ = open_model(config_, tokenizer_.get());
  check_storable(config_, model_);
  recipe_ = make_recipe(config_, model_.config, topology_);
  limits_ = layout_limits(config_, model_.config, topology_);
  data_ = open_data_of(config_, DataUse::Train, *tokenizer_, model_.config);
  check_samples(config_, topology_, *data_);
  if (!config_.data.eval.empty()) eval_data_ = open_data_of(config_, DataUse::Eval, *tokenizer_, model_.config);
  agree();
  steps_ = run_length(config_, *data_);
  config_.optimizer.schedule.steps = steps_;
  check_schedule(config_.optimizer.schedule);
  check_optimizer(config_.optimizer.spec);
  const RunConfig::TraceRange trace = options_.trace.value_or(config_.train.trace);
  if (main_rank() && trace.last > 0 && trace.first > steps_) log_warning("no step of {}:{} is traced: the run has {} steps", trace.first, trace.last, steps_);
  if (main_rank() && config_.optimizer.schedule.warmup > steps_) log_warning("the run of {} steps ends inside the warm-up of {}", steps_, config_.optimizer.schedule.warmup);
  if (recipe_.model.trainable_parameters() == 0) {
    throw Error(ErrorKind::Usage, "train.freeze leaves nothing to train").at(config_.source.place("train.freeze")).cure("name fewer tensors");
  }

  const Layout assumed = assumed_layout_of(config_, model_.config, limits_);
  choose_prefetch(config_, assumed, communicator_, recipe_);
  const PlanSummary summary = summarize(recipe_, assumed);
  require_fit(summary, recipe_, assumed, memory_per_rank(communicator_));

  engine_ = std::make_unique<Engine>(recipe_, communicator_, EngineOptions{config_.run.seed, options_.threads, config_.optimizer.spec});
  std::optional<CheckpointHandle> checkpoint;
  if (options_.resume) checkpoint = checkpoint_to_resume();
  if (checkpoint) {
    restore(*checkpoint);
  } else {
    engine_->set_weights(initial_weights(model_, config_.run.seed));
  }
  if (step_ < steps_) {
    planner_ = std::make_unique<StepPlanner>(recipe_, communicator_.rank(), *data_, Selector(*data_, config_.run.seed, config_.batch.tokens, cursor_),
                                             config_.data.layout, limits_, step_ + 1, steps_);
    planner_->peek();   // its thread is done before the GEMM peak is measured
  }
  if (main_rank()) {
    folder_ = std::make_unique<RunFolder>(config_, options_.resume ? std::optional<int64_t>(step_) : std::nullopt);
    remove_leftovers(config_.run.dir);
    print_banner(summary, assumed);
    progress_ = std::make_unique<ProgressLine>(steps_, ProgressOptions{.pipe_steps = config_.train.log_every});
  }
  communicator_.barrier("run folder");
  peak_ = std::make_unique<GemmPeak>([this] { return measured_gemm_peak(communicator_, recipe_.compute, options_.threads); });
  if (main_rank()) {
    environment_ = {{"Ballast", BALLAST_VERSION},
                    {"CPU path", cpu_path()},
                    {"CPU flags", fmt::format("{}", fmt::join(cpu_flags(), " "))},
                    {"ranks", topology_.text()},
                    {"threads per rank", options_.threads},
                    {"transport", communicator_.name()},
                    {"model", model_.text},
                    {"parameters", recipe_.model.parameters()},
                    {"planned memory per rank", format_bytes(summary.bytes_per_rank)}};
    write_environment();
  }
  if (main_rank()) log_info("GEMM peak measured on {} rank{} x {} thread{}: {:.1f} GFLOP/s in {}", topology_.ranks(), topology_.ranks() == 1 ? "" : "s", options_.threads,
                            options_.threads == 1 ? "" : "s", peak_->rate() / 1e9, name_of(recipe_.compute));
}

void Trainer::write_environment() {
  environment_["GEMM peak, all ranks [GFLOP/s]"] = std::round(peak_->rate() / 1e8) / 10;
  folder_->write_environment(environment_);
}

void Trainer::agree() {
  // The first item that differs is named with both ranks.
  std::vector<std::pair<std::string, std::string>> keys;
  for (const ConfigKey& key : config_.source.schema().keys()) keys.emplace_back("configuration key " + key.path, config_.source.canonical(key.path));
  check_same(communicator_, keys);
  check_same(communicator_, {{"version", BALLAST_VERSION},
                             {"file of data.sequence.curves", curves_fingerprint(config_)},
                             {"tokenizer", fmt::format("{:016x}", tokenizer_->hash())},
                             {"training data", fmt::format("{:016x}", data_->fingerprint())},
                             {"evaluation data", eval_data_ == nullptr ? "none" : fmt::format("{:016x}", eval_data_->fingerprint())},
                             {"model", fmt::format("{} parameters, layout {}", recipe_.model.parameters(), layout_fingerprint(recipe_))}});
}

void Trainer::print_banner(const PlanSummary& assumed, const Layout& assumed_layout) {
  log_info("model {}: {:.1f} M parameters, {:.1f} M trained", model_.text, static_cast<double>(recipe_.model.parameters()) / 1e6,
           static_cast<double>(recipe_.model.trainable_parameters()) / 1e6);
  log_info("{} over {}, {}, {} thread{} per rank, {} steps", communicator_.name(), topology_.text(), config_.train.precision, options_.threads,
           options_.threads == 1 ? "" : "s", steps_);
  const PlannedStep* first = planner_ == nullptr ? nullptr : planner_->peek();
  const std::vector<std::string> lines = first == nullptr ? banner_lines(assumed, recipe_, assumed_layout, "assumed")
                                                          : banner_lines(summarize(recipe_, first->layout), recipe_, first->layout, fmt::format("step {}", first->step));
  for (const std::string& line : lines) log_info("{}", line);
}

// Nothing where the run has come to no checkpoint: it starts anew. Damaged ones are another matter: what they held would be lost.
std::optional<CheckpointHandle> Trainer::checkpoint_to_resume() {
  std::vector<BadCheckpoint> bad;
  std::optional<CheckpointHandle> found = newest_valid(config_.run.dir, bad);
  check_same(communicator_, {{"newest valid checkpoint", found ? fmt::format("step {}", found->step) : bad.empty() ? "none" : "damaged ones alone"}});
  if (main_rank()) {
    for (const BadCheckpoint& one : bad) log_warning("checkpoint {} is not used: {}", one.folder.string(), one.why);
  }
  if (found || bad.empty()) {
    if (!found && main_rank()) log_warning("--resume: {} has no checkpoint yet; the run starts again from step 0", config_.run.dir);
    return found;
  }
  if (!main_rank()) throw SaidByRankZero{exit_code(ErrorKind::CorruptFile)};
  throw Error(ErrorKind::CorruptFile, "--resume: the run has no valid checkpoint").at(config_.run.dir).cure("start a new run in another folder; nothing was changed here");
}

void Trainer::restore(const CheckpointHandle& checkpoint) {
  restore_checkpoint(checkpoint, *engine_);
  cursor_ = Cursor::parse(checkpoint.state.cursor.dump());
  step_ = checkpoint.step;
  elapsed_s_ = checkpoint.state.metrics.value("elapsed_s", 0.0);
  if (checkpoint.state.metrics.contains("best_eval_loss")) best_eval_ = checkpoint.state.metrics["best_eval_loss"].get<double>();
  log_info("resumed from {} (step {})", checkpoint.folder.string(), checkpoint.step);
}

}  // namespace ballast
