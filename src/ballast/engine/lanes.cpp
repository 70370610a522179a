#include "ballast/engine/lanes.h"

#include "ballast/base/check.h"

namespace ballast {

Lanes::Lanes(int lanes, std::function<void(Lane)> start_thread) : start_thread_(std::move(start_thread)) {
  for (int lane = 1; lane < lanes; ++lane) threads_.emplace_back([this, lane] { lane_thread(static_cast<Lane>(lane)); });
}

Lanes::~Lanes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Lanes::lane_thread(Lane lane) {
  start_thread_(lane);
  uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
    }
    run_lane(lane);
    const std::lock_guard lock(mutex_);
    --busy_;
    changed_.notify_all();
  }
}

void Lanes::run_lane(Lane lane) {
  for (const size_t index : order_[static_cast<size_t>(lane)]) {
    const Op& op = graph_->ops[index];
    {
      std::unique_lock lock(mutex_);
      const auto ready = [&] {
        for (const int32_t earlier : op.after) if (!done_[static_cast<size_t>(earlier)]) return false;
        return true;
      };
      changed_.wait(lock, [&] { return failure_ || ready(); });
      if (failure_) return;
    }
    try {
      (*execute_)(op, index);
    } catch (...) {
      const std::exception_ptr mine = std::current_exception();
      bool first = false;
      {
        const std::lock_guard lock(mutex_);
        first = !failure_;
        if (first) failure_ = mine;
      }
      changed_.notify_all();
      if (first) (*on_failure_)(mine);
      return;
    }
    const std::lock_guard lock(mutex_);
    done_[index] = 1;
    if (!threads_.empty()) changed_.notify_all();
  }
}

void Lanes::run(const StepGraph& graph, const std::function<void(const Op&, size_t)>& execute,
                const std::function<void(const std::exception_ptr&)>& on_failure) {
  BALLAST_CHECK(graph.lanes <= static_cast<int>(threads_.size()) + 1, "graph has {} lanes", graph.lanes);
  {
    const std::lock_guard lock(mutex_);
    graph_ = &graph;
    execute_ = &execute;
    on_failure_ = &on_failure;
    order_.assign(threads_.size() + 1, {});
    for (size_t i = 0; i < graph.ops.size(); ++i) order_[static_cast<size_t>(graph.ops[i].lane)].push_back(i);
    done_.assign(graph.ops.size(), 0);
    failure_ = nullptr;
    busy_ = static_cast<int>(threads_.size());
    ++generation_;
  }
  changed_.notify_all();
  run_lane(kComputeLane);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace ballast
