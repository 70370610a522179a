#pragma once
// Trains a tiny model for a few steps on thread-ranks under any recipe, and says what came out: the harness that every strategy joins.
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ballast/engine/engine.h"
#include "ballast/graph/summary.h"
#include "ballast/layout/policies.h"

namespace ballast::testing {

struct Case {
  ModelConfig model;
  std::vector<std::string> freeze;
  std::vector<Level> levels{{"node", 1, {}, {}}};
  std::string placement = "ddp";        // preset text or a YAML table
  std::string layout = "packed";        // a policy, or "random": sequences cut and moved in any legal way
  SequenceOptions sequence;
  int64_t micro_tokens = 64;
  int64_t longest = 31;                 // lengths are 1..longest
  int64_t giant = 0;                    // if not 0: the length of each step's first sample
  int64_t recompute_every = 0;
  int64_t prefetch = 2;
  DType compute = DType::Float32;
  OptimizerSpec optimizer{.name = "sgd", .momentum = 0.9};
  double lr = 0.05, clip = 1.0;
  int64_t steps = 3;
  int64_t samples_per_step = 9;
  uint64_t seed = 11;
  bool limit_links = false;             // links as slow as `levels` say
  std::string broken_tensor;            // its first element is NaN from the start
  std::map<std::string, float> constants;   // tensors whose elements all are this from the start
  bool skip_nonfinite = false;
  std::function<std::chrono::milliseconds(const StepGraph&, const Op&)> delay;   // of an operation, on its lane
  std::function<void(StepGraph&)> edit_graph;                                     // of each training step, on every rank
  bool split_table = true;              // the token table travels in two parts
  bool empty_ends = false;              // no rank has a token in the first micro-batch, nor in the last
  int64_t reload_before = 0;            // before this step all weights are set anew to their initial values, as a load does
  std::string name() const;
};

struct Outcome {
  std::vector<double> losses, norms;                       // by step
  double eval_loss = 0;                                    // after the last step
  std::map<std::string, std::vector<float>> weights;       // by tensor, after the last step
  std::map<std::string, std::vector<float>> initial;
  std::map<std::string, std::vector<float>> gradients;     // by tensor, of the first step, clipped: what sgd's momentum holds after it; empty without
  std::vector<int64_t> bytes;                              // by level, sum over ranks and steps, as counted
  std::vector<int64_t> planned_bytes;                      // the same from the plan
  int64_t layout_bytes = 0, planned_layout_bytes = 0;      // of rings and remapping, over all levels, ranks and steps
  int64_t cut = 0, remapped = 0;                           // sequences that ranks shared, micro-batches whose tokens moved
  std::vector<int64_t> memory, planned_memory;             // by rank: persistent and arenas; from the plan
  int64_t micro_batches = 0;
  std::vector<bool> updated;                               // by step
  std::string nonfinite;                                   // where, of the last step that was left out
  std::vector<std::string> diverged;                       // buffers whose copies on other ranks differ in the end
  int64_t gathered = 0;                                    // gathered weights, by step, micro-batch, direction and group, that ranks held against each other
  std::vector<std::string> gathered_diverged;              // those that differ
  double padding = 0;                                      // largest magnitude in the padding of master weights
};

Outcome run(const Case& c);

ModelConfig tiny_gpt2();   // tied table, biases, learned positions
ModelConfig tiny_llama();  // untied, GQA, RoPE, SwiGLU

}  // namespace ballast::testing
