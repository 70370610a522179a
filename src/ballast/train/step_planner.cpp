#include "ballast/train/step_planner.h"

#include <chrono>

#include "ballast/base/check.h"
#include "ballast/layout/report.h"

namespace ballast {

const char* first_difference(const PlanFingerprints& a, const PlanFingerprints& b) {
  if (a.selection != b.selection) return "selection";
  if (a.layout != b.layout) return "layout";
  return a.operations != b.operations ? "order of operations" : nullptr;
}

StepPlanner::StepPlanner(const Recipe& recipe, int64_t rank, const DataSet& data, Selector selector, std::string layout_policy, LayoutLimits limits,
                         int64_t first_step, int64_t last_step)
    : recipe_(recipe), rank_(rank), data_(data), selector_(std::move(selector)), policy_(std::move(layout_policy)), limits_(limits), next_step_(first_step),
      last_step_(last_step) {
  start();
}

StepPlanner::~StepPlanner() {
  if (ahead_.valid()) ahead_.wait();
}

void StepPlanner::start() {
  if (next_step_ > last_step_) return;
  ahead_ = std::async(std::launch::async, [this] {
    set_thread_rank(static_cast<int>(rank_));
    return plan();
  });
}

PlannedStep StepPlanner::plan() {
  PlannedStep planned;
  planned.step = next_step_;
  const Selection selection = selector_.next();
  planned.after = selector_.cursor();
  planned.tokens = tokens_of(selection);
  planned.trained_targets = trained_of(selection, data_);
  planned.samples = static_cast<int64_t>(selection.size());
  limits_.options.epoch = planned.step;   // layouts that draw draw anew in every step
  planned.layout = make_layout(policy_, selection, limits_);
  const LayoutReport report = describe_layout(planned.layout, limits_);
  planned.cost_imbalance = report.cost_imbalance;
  planned.token_imbalance = report.token_imbalance;
  const auto& mine = planned.layout.ranks[static_cast<size_t>(rank_)];
  StepTokens tokens;   // those of all ranks are read only where a graph depends on them
  if (splits_table(recipe_)) tokens = step_tokens(planned.layout, [this](const MicroBatchLayout& batch) { return assemble(batch, data_).ids; });
  planned.graph = build_step(recipe_, rank_, mine, Work::Train, &tokens);
  for (const SampleRef& sample : selection) {
    planned.lengths.push_back(sample.length);
    planned.fingerprints.selection = planned.fingerprints.selection * 1099511628211ull + sample.sample * 31 + static_cast<uint64_t>(sample.length);
  }
  planned.fingerprints.layout = planned.layout.fingerprint();
  planned.fingerprints.operations = planned.graph.fingerprint();
  for (const MicroBatchLayout& batch : mine) planned.batches.push_back(to_micro_batch(assemble(batch, data_)));
  return planned;
}

const PlannedStep* StepPlanner::peek() {
  if (ready_ == nullptr && ahead_.valid()) {
    const auto begin = std::chrono::steady_clock::now();
    ready_ = std::make_unique<PlannedStep>(ahead_.get());
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return ready_.get();
}

PlanFingerprints StepPlanner::peek_fingerprints() {
  const PlannedStep* step = peek();
  return step == nullptr ? PlanFingerprints{} : step->fingerprints;
}

PlannedStep StepPlanner::next() {
  peek();
  BALLAST_CHECK(ready_ != nullptr, "no step after {}", last_step_);
  PlannedStep step = std::move(*ready_);
  ready_.reset();
  ++next_step_;
  start();
  return step;
}

PlannedEvaluation plan_evaluation(const Recipe& recipe, int64_t rank, const DataSet& data, const Selection& selection, const std::string& policy,
                                  const LayoutLimits& limits) {
  PlannedEvaluation planned;
  const Layout layout = make_layout(policy, selection, limits);
  planned.tokens = tokens_of(selection);
  const auto& mine = layout.ranks[static_cast<size_t>(rank)];
  planned.graph = build_step(recipe, rank, mine, Work::Evaluate);
  for (const MicroBatchLayout& batch : mine) planned.batches.push_back(to_micro_batch(assemble(batch, data)));
  return planned;
}

}  // namespace ballast
