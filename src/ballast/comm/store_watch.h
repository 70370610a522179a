#pragma once
// The failure channel of processes: a thread with its own connection to the rendezvous store shows this rank's
// heartbeat there, looks for a failure that another rank announced, and takes a lost store for the loss of the rank
// that keeps it.
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "ballast/comm/failure.h"

namespace ballast {

class StoreWatch final : public FailureChannel {
 public:
  // `store` is used by this thread alone; `keeper` is the rank that keeps it, -1 for the launcher.
  StoreWatch(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t ranks, int64_t keeper);
  ~StoreWatch() override;

  void announce(const Failure& failure) noexcept override;
  std::optional<Failure> known() const override;
  std::optional<Failure> await(std::chrono::milliseconds patience) override;
  std::vector<int64_t> silent() override;
  void on_failure(std::function<void()> interrupt) override;

  // Says goodbye; the rank that keeps the store waits up to `patience` for the others' goodbyes, so that the store
  // outlives their need of it.
  void leave(std::chrono::milliseconds patience);

 private:
  struct State;  // shared with the thread: one that hangs in a store that does not answer is left behind
  static void run(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace ballast
