#pragma once
// Communicator over c10d back ends, one per peer: receives posted first, then sends, then waiting with one deadline;
// failures told by a FailureChannel.
#include <list>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "ballast/comm/communicator.h"
#include "ballast/comm/failure.h"

namespace ballast {

class C10dCommunicator : public Communicator {
 public:
  // `interruptible`: the back end's wait tears everything down when it times out (Gloo), so waits are without limit and
  // end by Work::abort, called from expire() or when the channel hears of a failure. Otherwise wait(timeout) is used.
  C10dCommunicator(const Topology& topology, c10::intrusive_ptr<c10d::Backend> backend,
                   std::shared_ptr<FailureChannel> channel, const CommunicatorOptions& options, bool interruptible);
  // Several back ends: those that `near` reach their peers through it, the rest of the world goes through `far`. A
  // message through `near` only moves while somebody waits for it, so these are waited for first; `far` moves by
  // itself.
  struct Routes {
    c10::intrusive_ptr<c10d::Backend> near, far;  // one of the two may be null
    std::vector<bool> is_near;                    // by rank
  };
  C10dCommunicator(const Topology& topology, Routes routes, std::shared_ptr<FailureChannel> channel,
                   const CommunicatorOptions& options, bool interruptible);
  ~C10dCommunicator() override;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return name_; }
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
    bool near;
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

  Routes routes_;
  std::shared_ptr<FailureChannel> channel_;
  CommunicatorOptions options_;
  bool interruptible_;
  int64_t rank_, size_;
  std::string name_;
  std::mutex posting_;  // c10d back ends count their calls without a lock
  std::mutex flights_mutex_;
  std::list<Flight*> flights_;
};

}  // namespace ballast
