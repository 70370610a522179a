#pragma once
// The state of one graph run inside the engine, and what is derived from its times.
#include <functional>
#include <mutex>

#include "ballast/engine/engine.h"

namespace ballast {

struct GraphRun {
  const StepGraph* graph = nullptr;
  std::span<const MicroBatch> batches;
  StepSettings settings;
  bool train = false;
  double scale = 0;                              // 1 / trained targets
  const Engine::Sink* sink = nullptr;
  // Written by the compute lane only.
  ExactSum loss;
  int64_t targets = 0;
  StepResult result;
  // The first message in which an encoder of this rank met a value that is not finite: its group (-1: none), and which elements of it.
  std::mutex nonfinite_mutex;
  int32_t nonfinite_group = -1;
  Range nonfinite;
  void note_nonfinite(int32_t group, const Range& elements) {
    const std::lock_guard lock(nonfinite_mutex);
    if (nonfinite_group >= 0) return;
    nonfinite_group = group;
    nonfinite = elements;
  }
  // By op: start and end, seconds; each written by the lane that runs the op.
  std::vector<std::pair<double, double>> times;
  bool record = false;
  Engine::Occupancy occupancy;
  std::vector<char> touched;                     // with EngineOptions::poison: step buffers that were poisoned already
};

// Fills run.occupancy from run.times.
void summarize_times(GraphRun& run, double start_s, double end_s);
// Adds one record per operation to the timeline.
void append_records(const GraphRun& run, const Recipe& recipe, int64_t rank, const std::function<std::string(const Op&)>& name, Timeline& timeline);

}  // namespace ballast
