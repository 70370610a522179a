#pragma once
// The training loop of one rank: plan a step ahead, run it, agree on the figures, evaluate, checkpoint. It touches no buffer.
#include <filesystem>
#include <memory>
#include <optional>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/graph/summary.h"
#include "ballast/train/machine.h"
#include "ballast/train/metrics.h"
#include "ballast/train/progress.h"
#include "ballast/train/run_folder.h"
#include "ballast/train/setup.h"
#include "ballast/train/step_planner.h"
#include "ballast/train/tensorboard.h"

namespace ballast {

// Thrown on the other ranks where all ranks refuse for the same reason and rank 0 says it: the process ends quietly.
struct SaidByRankZero {
  int exit_code;
};

struct TrainerOptions {
  bool resume = false;
  std::optional<RunConfig::TraceRange> trace;
  int threads = 1;                      // of this rank
};

class Trainer {
 public:
  // Opens everything; all ranks agree on configuration, data and model before anything is written.
  Trainer(RunConfig config, const Topology& topology, Communicator& communicator, TrainerOptions options);
  ~Trainer();
  // Returns the exit code: 0, or Interrupted after a signal, with a checkpoint written.
  int run();

 private:
  struct Figures;
  void agree();
  void print_banner(const PlanSummary& assumed, const Layout& assumed_layout);
  void write_environment();
  std::optional<CheckpointHandle> checkpoint_to_resume();
  void restore(const CheckpointHandle& checkpoint);
  int64_t layout_bytes() const;                               // sent so far, over all levels
  bool train_step(PlannedStep step, double step_began);      // true: stop after this step
  void evaluate(int64_t step, bool whole);                   // whole: whatever train.eval_batches says
  void save(int64_t step);
  void write_trace();
  bool main_rank() const { return communicator_.rank() == 0; }

  RunConfig config_;
  Topology topology_;
  Communicator& communicator_;
  TrainerOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ModelSource model_;
  std::unique_ptr<DataSet> data_, eval_data_;
  Recipe recipe_;
  int64_t steps_ = 0;
  LayoutLimits limits_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RunFolder> folder_;
  nlohmann::json environment_;                // what environment.json holds
  std::unique_ptr<StepPlanner> planner_;
  std::unique_ptr<ProgressLine> progress_;    // rank 0
  Cursor cursor_;
  int64_t step_ = 0;                          // steps done
  std::unique_ptr<GemmPeak> peak_;            // of all ranks together
  bool peak_doubted_ = false;                 // and that was said
  double elapsed_s_ = 0;
  double waited_before_ = 0;
  std::vector<int64_t> sent_before_;
  int64_t layout_sent_before_ = 0;
  std::optional<double> best_eval_;           // over the batches of a periodic evaluation, so that all are compared on the same tokens
  std::optional<double> last_eval_;
  int64_t best_step_ = -1;                    // whose evaluation was the best so far
  std::optional<StepMetrics> last_;
  Timeline timeline_;
};

}  // namespace ballast
