#pragma once
// Runs the operations of a graph on one thread per lane: in program order within a lane, after their dependencies across lanes.
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ballast/graph/step_graph.h"

namespace ballast {

class Lanes {
 public:
  // `start_thread` runs first on every lane's thread (affinity, thread counts).
  Lanes(int lanes, std::function<void(Lane)> start_thread);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Lane 0 runs on the calling thread. Returns when all operations are done. If one throws, no further operation starts, `on_failure` is called
  // once (from the failing lane), and the first exception is rethrown here after all lanes have stopped.
  void run(const StepGraph& graph, const std::function<void(const Op&, size_t)>& execute, const std::function<void(const std::exception_ptr&)>& on_failure);

 private:
  void lane_thread(Lane lane);
  void run_lane(Lane lane);

  std::function<void(Lane)> start_thread_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // The current run, guarded by mutex_ except where the run itself is constant.
  const StepGraph* graph_ = nullptr;
  const std::function<void(const Op&, size_t)>* execute_ = nullptr;
  const std::function<void(const std::exception_ptr&)>* on_failure_ = nullptr;
  std::vector<std::vector<size_t>> order_;   // op indices by lane
  std::vector<char> done_;
  std::exception_ptr failure_;
  uint64_t generation_ = 0;
  int busy_ = 0;                             // lanes that have not finished this run
  bool stop_ = false;
};

}  // namespace ballast
