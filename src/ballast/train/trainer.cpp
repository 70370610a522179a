#include "ballast/train/trainer.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/comm/agreement.h"
#include "ballast/kernel/allocator.h"
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

Trainer::~Trainer() = default;

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
  state.config_fingerprint = fmt::format("{:016x}", config_.source.resume_fingerprint());
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
