#pragma once
// The steps of a run, one ahead: selection, layout, graph and tokens of step n + 1 are made on a thread of their own while step n runs.
#include <future>
#include <memory>

#include "ballast/train/setup.h"

namespace ballast {

// Of what is planned, in the order in which it is derived: the first that differs between ranks is where they part.
struct PlanFingerprints {
  uint64_t selection = 0, layout = 0, operations = 0;
  bool operator==(const PlanFingerprints&) const = default;
};
// "selection", "layout", "order of operations", or nothing where both agree.
const char* first_difference(const PlanFingerprints& a, const PlanFingerprints& b);

struct PlannedStep {
  int64_t step = 0;
  Layout layout;
  StepGraph graph;
  std::vector<MicroBatch> batches;
  std::vector<int64_t> lengths;  // of the samples
  int64_t trained_targets = 0, tokens = 0, samples = 0;
  double cost_imbalance = 1, token_imbalance = 1;
  Cursor after;                  // the data position once this step is done
  PlanFingerprints fingerprints; // equal on all ranks
};

class StepPlanner {
 public:
  StepPlanner(const Recipe& recipe, int64_t rank, const DataSet& data, Selector selector, std::string layout_policy, LayoutLimits limits, int64_t first_step,
              int64_t last_step);
  ~StepPlanner();

  // The next step; seconds that the caller had to wait for it are added to waited_s().
  PlannedStep next();
  double waited_s() const { return waited_s_; }
  // The step that next() will give (waits for it); nothing after the last.
  const PlannedStep* peek();
  // Fingerprints of the step that next() will give; zeros after the last.
  PlanFingerprints peek_fingerprints();

 private:
  PlannedStep plan();
  void start();
  const Recipe& recipe_;
  int64_t rank_;
  const DataSet& data_;
  Selector selector_;
  std::string policy_;
  LayoutLimits limits_;
  int64_t next_step_, last_step_;
  std::future<PlannedStep> ahead_;
  std::unique_ptr<PlannedStep> ready_;
  double waited_s_ = 0;
};

// Layout, graphs and tokens of one batch of evaluation.
struct PlannedEvaluation {
  StepGraph graph;
  std::vector<MicroBatch> batches;
  int64_t tokens = 0;
};
PlannedEvaluation plan_evaluation(const Recipe& recipe, int64_t rank, const DataSet& data, const Selection& selection, const std::string& policy,
                                  const LayoutLimits& limits);

}  // namespace ballast
