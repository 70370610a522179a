#pragma once
// A c10d back end for the processes of one host: messages go through rings in shared memory (shm_link.h).
// No thread of its own moves messages: of the threads that wait, one leads. It moves the messages of all links and
// sleeps when there are none to move; when its own work has ended it hands over to another one that waits. Invariants:
// a work that is waited for has a leader; the leader sleeps only after a look at every link that came after its
// announcement (ShmBell); whoever else ends a work, by posting, abort or the loss of a peer, or leaves one half
// written, rings the leader's bell.
#include <list>
#include <thread>

#include "ballast/comm/point_to_point_backend.h"
#include "ballast/comm/shm_link.h"
#include "ballast/comm/shm_meeting.h"

namespace ballast {

class ShmBackend final : public PointToPointBackend {
 public:
  // `size` ranks of which only `neighbours` (and this one) stand on this host; the others cannot be reached here.
  // A waiting thread looks for messages for `spin` before it sleeps.
  ShmBackend(int rank, int size, ShmNeighbours neighbours, std::chrono::microseconds spin);
  ~ShmBackend() override;
  const std::string getBackendName() const override { return "shm"; }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

  // For ShmWork.
  bool wait(ShmWork& work, std::chrono::milliseconds timeout);
  void cancel(ShmWork& work, ShmLink& link);
  ShmMoved move_all();
  void tell_leader() { neighbours_.mine->bell().ring(); }

 protected:
  c10::intrusive_ptr<c10d::Work> finished(c10d::OpType type) const override;

 private:
  using Clock = std::chrono::steady_clock;
  ShmLink& link(int peer) const;
  bool lead(ShmWork& work, Clock::time_point until);
  void hand_over();
  void watch_peers();

  ShmNeighbours neighbours_;
  std::chrono::microseconds spin_;
  std::vector<std::unique_ptr<ShmLink>> links_;  // by neighbour
  std::vector<ShmLink*> by_rank_;                // null: not on this host
  std::mutex role_;                              // of leader and followers; taken before a work's own lock
  bool led_ = false;
  std::list<ShmWork*> followers_;
  int stop_ = -1;  // an eventfd that ends the watcher
  std::thread watcher_;
};

}  // namespace ballast
