#pragma once
// A c10d back end for thread-ranks: mailboxes in memory, a receive copies straight from the sender's buffer.
// Small messages are copied when sent, so the sender goes on; large ones wait for their receiver, as with Gloo.
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <mutex>
#include <unordered_map>

#include "ballast/comm/failure.h"
#include "ballast/comm/point_to_point_backend.h"
#include "ballast/comm/rate_limit.h"

namespace ballast {

class InProcessWork;

// What the ranks of one process share. It is also their failure channel.
class InProcessHub final : public FailureChannel {
 public:
  // `links`: delays what is sent; nothing for links without limits.
  explicit InProcessHub(int ranks, std::unique_ptr<RateLimit> links = nullptr);

  c10::intrusive_ptr<InProcessWork> send(int from, int to, int tag, const char* data, int64_t bytes);
  c10::intrusive_ptr<InProcessWork> receive(int from, int to, int tag, char* data, int64_t bytes);
  // After it returns the work no longer touches its buffer; it is complete or failed.
  void cancel(InProcessWork& work);
  // Rank is gone: whoever waits for it is told.
  void leave(int rank);

  void announce(const Failure& failure) noexcept override;
  std::optional<Failure> known() const override;
  std::optional<Failure> await(std::chrono::milliseconds patience) override;
  std::vector<int64_t> silent() override { return {}; }
  void on_failure(std::function<void()>) override {}

 private:
  struct Letter {
    char* data;
    int64_t bytes;
    c10::intrusive_ptr<InProcessWork> work;  // null once an early copy is made
    std::unique_ptr<char[]> copy;
    RateLimit::Clock::time_point arrival{};  // of an early copy over limited links
  };
  struct Queue {
    std::deque<Letter> sends, receives;  // one of them is empty
  };
  struct Box {  // of one receiver
    std::mutex mutex;
    std::unordered_map<uint64_t, Queue> queues;  // by sender and tag
  };
  void refuse_if_ended(int from, int to) const;
  RateLimit::Clock::time_point arrival(const InProcessWork& work, int64_t bytes);
  void deliver(Letter& from, Letter& to);
  void fail_waiting(int rank, const std::string& reason);  // -1: all

  std::unique_ptr<RateLimit> links_;
  std::vector<std::unique_ptr<Box>> boxes_;
  std::unique_ptr<std::atomic<bool>[]> gone_;
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Failure failure_{};
};

class InProcessWork final : public c10d::Work {
 public:
  // `hub` outlives the work's waiting: whoever waits holds the back end, which holds the hub.
  InProcessWork(InProcessHub* hub, c10d::OpType type, int from, int to, int tag)
      : c10d::Work(-1, type), from(from), to(to), tag(tag), hub_(hub) {}
  // False when the time is over; the work goes on. Throws what it failed with.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override {
    if (hub_ != nullptr) hub_->cancel(*this);
  }
  void complete(std::exception_ptr exception = nullptr) { finish(std::move(exception)); }
  // The bytes are in place, but whoever waits learns it only at `arrival`.
  void complete_at(RateLimit::Clock::time_point arrival) {
    arrival_ = arrival;
    finish();
  }
  // Waits until nobody touches the buffers any more, however slow the link is.
  void await_buffers();

  const int from, to, tag;

 private:
  InProcessHub* hub_;
  RateLimit::Clock::time_point arrival_{};  // written before it completes
};

class InProcessBackend final : public PointToPointBackend {
 public:
  InProcessBackend(std::shared_ptr<InProcessHub> hub, int rank, int size)
      : PointToPointBackend(rank, size), hub_(std::move(hub)) {}
  ~InProcessBackend() override { hub_->leave(getRank()); }
  const std::string getBackendName() const override { return "in-process"; }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

 protected:
  c10::intrusive_ptr<c10d::Work> finished(c10d::OpType type) const override;

 private:
  std::shared_ptr<InProcessHub> hub_;
};

}  // namespace ballast
