#pragma once
// Communicator over any c10d back end: receives posted first, then sends, then waiting with one deadline; failures told
// by a FailureChannel.
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <list>
#include <mutex>

#include "ballast/comm/communicator.h"
#include "ballast/comm/failure.h"

namespace ballast {

class C10dCommunicator : public Communicator {
 public:
  // `interruptible`: the back end's wait tears everything down when it times out (Gloo), so waits are without limit and
  // end by Work::abort, called from expire() or when the channel hears of a failure. Otherwise wait(timeout) is used.
  // `keep_alive` is dropped after the back end.
  C10dCommunicator(const Topology& topology, c10::intrusive_ptr<c10d::Backend> backend,
                   std::shared_ptr<FailureChannel> channel, const CommunicatorOptions& options, bool interruptible);
  ~C10dCommunicator() override;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return backend_->getBackendName(); }
  void abort(const std::string& reason) noexcept override;

  // Ends the exchanges whose deadline has passed; called every now and then by the owner of an interruptible back end.
  void expire();

 protected:
  void transfer(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag,
                const Purpose& purpose) override;

 private:
  struct Pending {
    c10::intrusive_ptr<c10d::Work> work;
    int64_t peer;
    bool done = false;
  };
  struct Flight {
    std::vector<Pending> pending;
    std::chrono::steady_clock::time_point deadline;
    std::atomic<bool> expired{false};
  };

  void post(Flight& flight, std::span<const Send> sends, std::span<const Receive> receives, int tag, int64_t& peer);
  void wait(Flight& flight, int64_t& peer);
  void interrupt();
  [[noreturn]] void fail(Flight& flight, int64_t peer, const std::string& detail, const Purpose& purpose);
  [[noreturn]] void refuse(const Failure& failure, const Purpose& purpose) const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<FailureChannel> channel_;
  CommunicatorOptions options_;
  bool interruptible_;
  int64_t rank_, size_;
  std::mutex posting_;  // c10d back ends count their calls without a lock
  std::mutex flights_mutex_;
  std::list<Flight*> flights_;
};

}  // namespace ballast
