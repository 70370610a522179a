#include "ballast/comm/shm_backend.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "ballast/base/error.h"

namespace ballast {

ShmBackend::ShmBackend(int rank, int size, ShmNeighbours neighbours, std::chrono::microseconds spin)
    : PointToPointBackend(rank, size),
      neighbours_(std::move(neighbours)),
      spin_(spin),
      by_rank_(static_cast<size_t>(size), nullptr) {
  const auto& peers = neighbours_.peers;
  const ShmSegment& mine = *neighbours_.mine;
  const auto place = std::count_if(peers.begin(), peers.end(), [&](const ShmPeer& peer) { return peer.rank < rank; });
  for (size_t i = 0; i < peers.size(); ++i) {
    const ShmSegment& theirs = *peers[i].segment;
    const int64_t their_place = static_cast<int64_t>(i) + (peers[i].rank > rank ? 1 : 0);
    const int64_t to = ring_of(place, their_place), from = ring_of(their_place, place);
    links_.push_back(std::make_unique<ShmLink>(
        static_cast<int>(peers[i].rank), ShmRingWriter(theirs.control(to), theirs.data(to), theirs.ring_bytes()),
        ShmRingReader(mine.control(from), mine.data(from), mine.ring_bytes()), theirs.bell()));
    by_rank_[static_cast<size_t>(peers[i].rank)] = links_.back().get();
  }
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) throw Error(ErrorKind::Environment, "cannot open an event").found(errno_text(errno));
  watcher_ = std::thread(&ShmBackend::watch_peers, this);
}

ShmBackend::~ShmBackend() {
  eventfd_write(stop_, 1);
  watcher_.join();
  close(stop_);
}

ShmLink& ShmBackend::link(int peer) const {
  TORCH_CHECK(peer >= 0 && peer < getSize() && by_rank_[static_cast<size_t>(peer)] != nullptr, "shm: rank ", peer,
              " is no other rank of this host");
  return *by_rank_[static_cast<size_t>(peer)];
}

c10::intrusive_ptr<c10d::Work> ShmBackend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors);
  ShmLink& peer = link(to);
  auto work = c10::make_intrusive<ShmWork>(this, &peer, c10d::OpType::SEND);
  const ShmMoved moved =
      peer.send(work, tag, static_cast<const char*>(tensor.const_data_ptr()), static_cast<int64_t>(tensor.nbytes()));
  if (moved.completed || moved.more) tell_leader();
  return work;
}

c10::intrusive_ptr<c10d::Work> ShmBackend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  const at::Tensor& tensor = only(tensors);
  ShmLink& peer = link(from);
  auto work = c10::make_intrusive<ShmWork>(this, &peer, c10d::OpType::RECV);
  const ShmMoved moved =
      peer.receive(work, tag, static_cast<char*>(tensor.mutable_data_ptr()), static_cast<int64_t>(tensor.nbytes()));
  if (moved.completed || moved.more) tell_leader();
  return work;
}

c10::intrusive_ptr<c10d::Work> ShmBackend::finished(c10d::OpType type) const {
  auto work = c10::make_intrusive<ShmWork>(nullptr, nullptr, type);
  work->complete();
  return work;
}

ShmMoved ShmBackend::move_all() {
  ShmMoved moved;
  for (const auto& link : links_) moved += link->move();
  return moved;
}

bool ShmBackend::wait(ShmWork& work, std::chrono::milliseconds timeout) {
  const auto until = Clock::now() + (timeout == kNoTimeout ? std::chrono::hours(24 * 365) : timeout);
  std::list<ShmWork*>::iterator place;
  bool leads = false;
  {
    const std::lock_guard lock(role_);
    leads = !led_;
    led_ = true;
    if (!leads) place = followers_.insert(followers_.end(), &work);
  }
  bool ended = false;
  if (!leads) {
    ended = work.await(until) && work.ended();
    const std::lock_guard lock(role_);
    leads = work.takes_lead();  // then it is no follower any more
    if (!leads) followers_.erase(place);
  }
  if (leads) {
    ended = lead(work, until);
    hand_over();
  }
  return ended;
}

bool ShmBackend::lead(ShmWork& work, Clock::time_point until) {
  ShmBell& bell = neighbours_.mine->bell();
  auto idle_since = Clock::now();
  while (!work.ended()) {
    if (move_all().any) {
      idle_since = Clock::now();
      continue;
    }
    const auto now = Clock::now();
    if (now >= until) return work.ended();
    if (now - idle_since < spin_) {
      std::this_thread::yield();
      continue;
    }
    const uint32_t seen = bell.fall_asleep();
    if (work.ended() || move_all().any) {
      bell.wake_up();
    } else {
      bell.sleep(seen, until - now);
    }
    idle_since = Clock::now();
  }
  return true;
}

void ShmBackend::hand_over() {
  const std::lock_guard lock(role_);
  led_ = !followers_.empty();
  if (!led_) return;
  followers_.front()->lead();
  followers_.pop_front();
}

void ShmBackend::cancel(ShmWork& work, ShmLink& link) {
  link.cancel(work);
  tell_leader();
}

void ShmBackend::watch_peers() {
  std::vector<pollfd> entries;
  for (const ShmPeer& peer : neighbours_.peers) entries.push_back({peer.socket, POLLIN, 0});
  entries.push_back({stop_, POLLIN, 0});
  while (true) {
    if (poll(entries.data(), entries.size(), -1) <= 0) continue;
    if (entries.back().revents != 0) return;
    for (size_t i = 0; i < links_.size(); ++i) {
      if (entries[i].revents == 0) continue;  // nobody writes to these sockets: it is closed
      entries[i].fd = -1;
      links_[i]->lose(fmt::format("rank {} has left", links_[i]->peer()));
      tell_leader();
    }
  }
}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  if (!ended() && !backend_->wait(*this, timeout)) return false;
  const std::lock_guard lock(mutex_);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

bool ShmWork::isCompleted() {
  if (!ended()) {
    const ShmMoved moved = backend_->move_all();
    if (moved.completed || moved.more) backend_->tell_leader();
  }
  return ended();
}

void ShmWork::abort() {
  if (backend_ != nullptr) backend_->cancel(*this, *link_);
}

}  // namespace ballast
