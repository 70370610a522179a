#include "ballast/train/trainer.h"

#include <fmt/format.h>

#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <numeric>
#include <utility>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/base/units.h"
#include "ballast/comm/agreement.h"
#include "ballast/kernel/allocator.h"
#include "ballast/train/banner.h"
#include "ballast/train/checkpoint_io.h"
#include "ballast/train/report.h"
#include "ballast/train/signals.h"
#include "ballast/train/trace.h"

namespace ballast {

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

// What one rank says of one step; exchanged as plain bytes, so all ranks must run the same binary (checked at start).
struct Trainer::Figures {
  int64_t memory_bytes = 0;
  int64_t stop = 0;                // a signal arrived
  PlanFingerprints next;           // of the step planned ahead
  double step_s = 0, exposed_s = 0, waited_s = 0;
  std::array<int64_t, 16> bytes{};   // by level
  int64_t layout_bytes = 0;          // over all levels
};

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
  if (options_.resume) {
    checkpoint = checkpoint_to_resume();
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
    folder_ = std::make_unique<RunFolder>(config_, checkpoint ? std::optional<int64_t>(checkpoint->step) : std::nullopt);
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

Trainer::~Trainer() = default;

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

CheckpointHandle Trainer::checkpoint_to_resume() {
  std::vector<BadCheckpoint> bad;
  std::optional<CheckpointHandle> found = newest_valid(config_.run.dir, bad);
  check_same(communicator_, {{"newest valid checkpoint", found ? fmt::format("step {}", found->step) : "none"}});
  if (main_rank()) {
    for (const BadCheckpoint& one : bad) log_warning("checkpoint {} is not used: {}", one.folder.string(), one.why);
  }
  if (found) return std::move(*found);
  const ErrorKind kind = bad.empty() ? ErrorKind::Data : ErrorKind::CorruptFile;
  if (!main_rank()) throw SaidByRankZero{exit_code(kind)};
  throw Error(kind, "--resume: the run has no valid checkpoint").at(config_.run.dir).cure("start a new run in another folder; nothing was changed here");
}

void Trainer::restore(const CheckpointHandle& checkpoint) {
  restore_checkpoint(checkpoint, *engine_);
  cursor_ = Cursor::parse(checkpoint.state.cursor.dump());
  step_ = checkpoint.step;
  elapsed_s_ = checkpoint.state.metrics.value("elapsed_s", 0.0);
  if (checkpoint.state.metrics.contains("best_eval_loss")) best_eval_ = checkpoint.state.metrics["best_eval_loss"].get<double>();
  log_info("resumed from {} (step {})", checkpoint.folder.string(), checkpoint.step);
}

int Trainer::run() {
  const SignalWatch signals;
  if (step_ >= steps_) {
    log_info("nothing is left to do: {} step{} done, {} asked for", step_, step_ == 1 ? " is" : "s are", steps_);
    return 0;
  }
  const PlanFingerprints first = planner_->peek_fingerprints();
  check_same(communicator_, {{"selection of the first step", fmt::format("{:016x}", first.selection)},
                             {"layout of the first step", fmt::format("{:016x}", first.layout)},
                             {"operations of the first step", fmt::format("{:016x}", first.operations)}});
  waited_before_ = planner_->waited_s();   // the first plan has nothing to hide behind
  sent_before_ = communicator_.bytes_sent();
  layout_sent_before_ = layout_bytes();
  bool stop = false;
  double began = now_s();
  while (!stop && step_ < steps_) {
    PlannedStep step = planner_->next();
    stop = train_step(std::move(step), began);
    began = now_s();
    const bool last = stop || step_ == steps_;
    const bool evaluates = eval_data_ != nullptr && ((config_.train.eval_every > 0 && step_ % config_.train.eval_every == 0) || (last && !stop));
    if (evaluates) evaluate(step_, step_ == steps_);
    // The best one is kept beside the newest, so a new best is always saved.
    const bool saves = last || (config_.checkpoint.every > 0 && step_ % config_.checkpoint.every == 0) || (config_.checkpoint.best && best_step_ == step_);
    if (saves) save(step_);
    if (evaluates || saves) {
      began = now_s();   // neither counts as training time
      sent_before_ = communicator_.bytes_sent();
      layout_sent_before_ = layout_bytes();
    }
  }
  if (main_rank()) progress_->finish();
  write_trace();
  if (main_rank()) {
    write_report(config_.run.dir);
    log_info("{} after step {}: {}/report.html", stop ? "interrupted" : "done", step_, config_.run.dir);
  }
  communicator_.barrier("end of the run");
  return stop ? exit_code(ErrorKind::Interrupted) : 0;
}

int64_t Trainer::layout_bytes() const {
  const std::vector<int64_t> sent = communicator_.layout_bytes_sent();
  return std::accumulate(sent.begin(), sent.end(), int64_t{0});
}

bool Trainer::train_step(PlannedStep step, double step_began) {
  const RunConfig::TraceRange trace = options_.trace.value_or(config_.train.trace);
  const bool traced = trace.last > 0 && step.step >= trace.first && step.step <= trace.last;
  engine_->record_to(traced ? &timeline_ : nullptr);
  reset_peak();
  StepSettings settings;
  settings.step = step.step;
  settings.lr = learning_rate(config_.optimizer.schedule, step.step);
  settings.clip = config_.optimizer.clip;
  settings.trained_targets = step.trained_targets;
  settings.skip_nonfinite = config_.train.skip_nonfinite;
  const StepResult result = engine_->train(step.graph, step.batches, settings);
  step_ = step.step;
  cursor_ = step.after;

  Figures mine;
  mine.memory_bytes = peak_bytes();
  mine.stop = stop_requested() ? 1 : 0;
  mine.exposed_s = engine_->occupancy().exposed_link_s;
  mine.next = planner_->peek_fingerprints();
  mine.waited_s = planner_->waited_s() - waited_before_;
  waited_before_ = planner_->waited_s();
  mine.step_s = now_s() - step_began;
  const std::vector<int64_t> sent = communicator_.bytes_sent();
  for (size_t l = 0; l < sent.size(); ++l) mine.bytes[l] = sent[l] - sent_before_[l];
  sent_before_ = sent;
  mine.layout_bytes = layout_bytes() - layout_sent_before_;
  layout_sent_before_ += mine.layout_bytes;

  std::vector<Figures> all(static_cast<size_t>(communicator_.size()));
  communicator_.all_gather_fixed(&mine, sizeof mine, all.data(), "figures of the step");
  bool stop = false;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    stop = stop || all[rank].stop != 0;
    if (const char* what = first_difference(all[rank].next, all[0].next)) {
      throw Error(ErrorKind::PeerLost, fmt::format("rank {} has planned another {} for step {} than rank 0", rank, what, step.step + 1))
          .cure("all ranks must run the same binary on the same data");
    }
  }
  elapsed_s_ += mine.step_s;
  const double flops = linear_flops_per_token(recipe_.model) * static_cast<double>(step.tokens) + attention_flops(recipe_.model.config, step.lengths);
  const double peak_before = peak_->rate();
  if (peak_->doubt(flops / all[0].step_s) && main_rank()) {
    if (!std::exchange(peak_doubted_, true)) {
      progress_->finish_line();
      log_info("step {} went faster than the measured GEMM peak allows: measured again, {:.1f} GFLOP/s instead of {:.1f}", step.step, peak_->rate() / 1e9, peak_before / 1e9);
    }
    write_environment();
  }
  if (!main_rank()) return stop;

  StepMetrics metrics;
  metrics.step = step.step;
  metrics.loss = result.loss;
  metrics.lr = settings.lr;
  metrics.grad_norm = result.grad_norm;
  metrics.tokens = step.tokens;
  metrics.trained_tokens = step.trained_targets;
  metrics.time_s = mine.step_s;
  metrics.tokens_per_s = static_cast<double>(step.tokens) / mine.step_s;
  metrics.elapsed_s = elapsed_s_;
  metrics.micro_batches = step.layout.micro_batches();
  metrics.samples = step.samples;
  metrics.skipped = !result.updated;
  metrics.imbalance = step.cost_imbalance;
  metrics.token_imbalance = step.token_imbalance;
  const int64_t slots = step.layout.slots();
  metrics.padding_share = slots == 0 ? 0 : 1.0 - static_cast<double>(step.tokens) / static_cast<double>(slots);
  metrics.wall_time = wall_time();
  for (int l = 0; l < topology_.level_count(); ++l) {
    int64_t bytes = 0;
    for (const Figures& figures : all) bytes += figures.bytes[static_cast<size_t>(l)];
    metrics.bytes[topology_.level(l).name] = bytes;
  }
  for (const Figures& figures : all) {
    metrics.layout_bytes += figures.layout_bytes;
    metrics.memory_bytes = std::max(metrics.memory_bytes, figures.memory_bytes);
    metrics.communication_share += figures.exposed_s / figures.step_s / static_cast<double>(all.size());
    metrics.data_wait_share += figures.waited_s / figures.step_s / static_cast<double>(all.size());
  }
  metrics.mfu = flops / mine.step_s / peak_->rate();
  folder_->append(metrics);
  progress_->update(metrics);
  if (metrics.skipped) progress_->message(fmt::format("step {}: loss or gradient not finite{}; the update was left out", step.step, result.nonfinite));
  last_ = metrics;
  return stop;
}

void Trainer::evaluate(int64_t step, bool whole) {
  engine_->record_to(nullptr);
  const double began = now_s();
  ExactSum loss;
  EvalMetrics metrics;
  metrics.step = step;
  const auto mean = [&] { return loss.value() / static_cast<double>(std::max<int64_t>(1, metrics.trained_tokens)); };
  std::optional<double> compared;
  int64_t next = 0;
  for (int64_t batch = 0;; ++batch) {
    if (batch == config_.train.eval_batches) {
      compared = mean();
      if (!whole) break;
    }
    const Selection selection = select_in_order(*eval_data_, config_.batch.tokens, next);
    if (selection.empty()) break;
    const PlannedEvaluation planned = plan_evaluation(recipe_, communicator_.rank(), *eval_data_, selection, config_.data.layout, limits_);
    const Engine::Evaluation evaluation = engine_->evaluate(planned.graph, planned.batches);
    loss.merge(evaluation.loss);
    metrics.trained_tokens += evaluation.targets;
    metrics.tokens += planned.tokens;
  }
  metrics.eval_loss = mean();
  if (!compared) compared = metrics.eval_loss;
  metrics.time_s = now_s() - began;
  metrics.tokens_per_s = static_cast<double>(metrics.tokens) / metrics.time_s;
  metrics.best = std::isfinite(*compared) && (!best_eval_ || *compared < *best_eval_);
  metrics.wall_time = wall_time();
  if (metrics.best) {
    best_eval_ = compared;
    best_step_ = step;
  }
  last_eval_ = metrics.eval_loss;
  if (main_rank()) {
    folder_->append(metrics);
    progress_->evaluation(metrics);
  }
}

void Trainer::save(int64_t step) {
  engine_->record_to(nullptr);
  CheckpointState state;
  state.step = step;
  state.ranks = topology_.ranks();
  state.seed = config_.run.seed;
  state.config_fingerprint = fmt::format("{:016x}", config_.source.fingerprint());
  state.layout_fingerprint = layout_fingerprint(recipe_);
  state.topology = topology_.text();
  state.cursor = nlohmann::json::parse(cursor_.json());
  state.metrics = {{"elapsed_s", elapsed_s_}};
  if (best_eval_) state.metrics["best_eval_loss"] = *best_eval_;
  if (last_eval_) state.metrics["eval_loss"] = *last_eval_;
  if (last_) state.metrics["loss"] = last_->loss;
  ModelWriterOptions options;
  options.tokenizer = named_for_model(tokenizer_->files());
  options.token_ids.eos = {tokenizer_->end_of_text()};
  save_checkpoint(config_.run.dir, state, *engine_, communicator_, options);
  engine_->forget_feedback();  // as a run does that resumes from here
  if (!main_rank()) return;
  if (config_.checkpoint.best && best_step_ == step) keep_best(config_.run.dir, step);
  prune_checkpoints(config_.run.dir, config_.checkpoint.keep);
}

void Trainer::write_trace() {
  const std::vector<std::string> all = communicator_.all_gather_text(encode_timeline(timeline_), "timelines");
  if (!main_rank()) return;
  Timeline merged;
  for (size_t rank = 0; rank < all.size(); ++rank) merged.merge(decode_timeline(all[rank], fmt::format("rank {}", rank)));
  if (merged.records.empty()) return;
  const std::filesystem::path run = config_.run.dir;
  write_chrome_trace(run / "trace.json", merged);
  write_timeline_summary(run / "timeline.json", merged);
}

}  // namespace ballast
