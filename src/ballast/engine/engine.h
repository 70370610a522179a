#pragma once
// The engine: runs a rank's StepGraph. It knows segments, hops and shards, but no strategy by name and no configuration.
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "ballast/base/exact_sum.h"
#include "ballast/codec/transcode.h"
#include "ballast/comm/communicator.h"
#include "ballast/engine/lanes.h"
#include "ballast/engine/memory.h"
#include "ballast/graph/build_step.h"
#include "ballast/graph/timeline.h"
#include "ballast/model/segments.h"
#include "ballast/optim/flat_optimizer.h"

namespace ballast {

struct GraphRun;  // of one graph: run.h

struct EngineOptions {
  uint64_t seed = 0;
  int threads = 1;                    // of the compute lane, per rank
  OptimizerSpec optimizer;
  // Fills step buffers with NaN before their first write and secondary weights at the start of each graph: reading what was not written shows.
#ifdef BALLAST_POISON
  bool poison = true;
#else
  bool poison = false;
#endif
  // Called on the operation's lane before it runs: tests delay operations and look at what they read.
  std::function<void(const StepGraph&, const Op&)> before_op;
};

// What one training step needs beside the graph and the tokens.
struct StepSettings {
  int64_t step = 1;                   // counts from 1
  double lr = 0;
  double clip = 0;                    // 0 = off
  int64_t trained_targets = 0;        // over all ranks: the sum of losses is divided by it once
  bool skip_nonfinite = false;        // false: a non-finite loss or gradient throws Error(Numerical)
};

struct StepResult {
  double loss = 0;                    // nats per trained target
  double grad_norm = 0;               // before clipping, over all trainable weights, each counted once
  bool updated = true;                // false: skipped for a non-finite value
  std::string nonfinite;              // "; the weights X on rank 1": where, if so
};

class Engine {
 public:
  // All ranks construct theirs with the same recipe. The communicator outlives the engine.
  Engine(Recipe recipe, Communicator& communicator, EngineOptions options);

  const Recipe& recipe() const { return recipe_; }
  int64_t rank() const { return communicator_.rank(); }

  // Sets this rank's weights and master of every group: `fill(group, begin, values)` writes fp32 values of elements [begin, begin + n) of the
  // group's padded buffer (called with ranges that together cover what this rank holds; beyond group.numel the values must stay 0).
  using Fill = std::function<void(const ParameterGroup& group, int64_t begin, std::span<float> values)>;
  void set_weights(const Fill& fill);

  StepResult train(const StepGraph& graph, std::span<const MicroBatch> batches, const StepSettings& settings);
  // The exact sum of token losses of all ranks and their number; no dropout.
  struct Evaluation {
    ExactSum loss;
    int64_t targets = 0;
  };
  Evaluation evaluate(const StepGraph& graph, std::span<const MicroBatch> batches);
  // Runs a Work::Collect graph; `sink` gets each group's full flat buffer (fp32 where there is a master, else the compute dtype).
  using Sink = std::function<void(const ParameterGroup& group, const at::Tensor& flat)>;
  void collect(const StepGraph& graph, const Sink& sink);

  // Persistent buffers, for checkpoints.
  const GraphMemory& memory() const { return memory_; }
  // After a checkpoint's master weights were written into place: makes the compute weights follow (this rank's optimizer shard; the
  // refresh at the start of the next graph does the rest).
  void weights_from_master();

  // Error feedback starts at zero again, as in an engine just made.
  void forget_feedback();

  // Records of the operations of the runs from now on; nullptr stops. Times are seconds since the clock's start.
  void record_to(Timeline* timeline) { timeline_ = timeline; }
  // Seconds that the compute lane was busy, and that link lanes were busy while it was not, in the last run.
  struct Occupancy {
    double wall_s = 0, compute_s = 0, exposed_link_s = 0;
  };
  const Occupancy& occupancy() const { return occupancy_; }

 private:
  void run(const StepGraph& graph, GraphRun& run);
  void execute(const Op& op, GraphRun& run);
  void execute_segment(const Op& op, GraphRun& run);
  void execute_attention(const Op& op, GraphRun& run);
  void execute_exchange(const Op& op);
  void execute_hop(const Op& op);
  void execute_codec(const Op& op, GraphRun& run);
  Draw draw_of(const Op& op, const GraphRun& run) const;
  Feedback feedback_of(const Op& op, const GraphRun& run) const;
  std::string blame_nonfinite(GraphRun& run);
  void agree_on_norm(GraphRun& run);
  void update(const Op& op, GraphRun& run);
  void poison_fresh(const Op& op, GraphRun& run);
  void poison_refreshed(const StepGraph& graph);
  std::string describe(const Op& op) const;

  Recipe recipe_;
  Communicator& communicator_;
  EngineOptions options_;
  GraphMemory memory_;
  bool reserved_ = false;                                 // the arenas can hold a Work::Collect graph
  std::vector<GroupPlace> places_;
  std::vector<std::vector<UpdateRange>> update_ranges_;   // by group, within this rank's optimizer shard
  std::unique_ptr<Lanes> lanes_;
  Timeline* timeline_ = nullptr;
  Occupancy occupancy_;
};

}  // namespace ballast
