#pragma once
// The work object of one message through shared memory: whoever waits for it moves the messages of all.
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace ballast {

class ShmBackend;
class ShmLink;

class ShmWork final : public c10d::Work {
 public:
  // `backend` and `link` outlive the work's waiting: whoever waits holds the back end. Null for finished work.
  ShmWork(ShmBackend* backend, ShmLink* link, c10d::OpType type)
      : c10d::Work(-1, type), backend_(backend), link_(link) {}
  // False when the time is over; the work goes on. Throws what it failed with.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Moves messages too, so that asking again and again comes to an end.
  bool isCompleted() override;
  void abort() override;

  void complete(std::exception_ptr exception = nullptr) { finish(std::move(exception)); }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return completed_;
  }
  // Waits until the work has ended or its thread is to move the messages; false when the time is over.
  bool await(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    return cv_.wait_until(lock, until, [this] { return completed_ || leads_; });
  }
  // Makes the thread that waits for this work move the messages from now on.
  void lead() {
    const std::lock_guard lock(mutex_);
    leads_ = true;
    cv_.notify_all();
  }
  // Whether it was told so since this was last asked.
  bool takes_lead() {
    const std::lock_guard lock(mutex_);
    return std::exchange(leads_, false);
  }

 private:
  ShmBackend* backend_;
  ShmLink* link_;
  bool leads_ = false;
};

}  // namespace ballast
