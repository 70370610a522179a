#pragma once
// Memory that one rank shares with the others of its host: a bell to be woken by and a ring from each of them. It is an
// anonymous file (memfd) that has no name anywhere: when the last process that maps it ends, however it ends, it is
// gone.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace ballast {

// Wakes the thread that waits for anything to happen in its rank's rings; at most one thread waits. Invariant: whoever
// changes what it may wait for changes it first and rings then; it announces its sleep first and looks again then. All
// of these are sequentially consistent, so one of the two sees the other.
class ShmBell {
 public:
  void ring() {
    if (asleep_.load() != 0 && asleep_.exchange(0) != 0) wake();
  }
  // fall_asleep() returns what sleep() takes; between the two the caller looks for work once more, and calls wake_up()
  // if it finds some.
  uint32_t fall_asleep() {
    const uint32_t seen = rings_.load();
    asleep_.store(1);
    return seen;
  }
  void wake_up() { asleep_.store(0); }
  void sleep(uint32_t seen, std::chrono::nanoseconds longest);

 private:
  void wake();
  alignas(64) std::atomic<uint32_t> rings_{0};  // the futex
  alignas(64) std::atomic<uint32_t> asleep_{0};
};

// Positions in a ring, in bytes since its beginning; what lies between tail and head is unread.
struct ShmRingControl {
  alignas(64) std::atomic<uint64_t> head{0};     // written by the sender
  alignas(64) std::atomic<uint64_t> tail{0};     // written by the receiver
  alignas(64) std::atomic<uint32_t> starved{0};  // the sender found no room and wants to be woken
};

class ShmSegment {
 public:
  // Reserves the memory for `rings` rings of `ring_bytes` (a power of two, whole pages). Throws Error(Environment).
  ShmSegment(int64_t rings, int64_t ring_bytes);
  // Maps what another rank made; closes nothing. Throws Error(Environment).
  explicit ShmSegment(int fd);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  ShmBell& bell() const;
  ShmRingControl& control(int64_t ring) const;
  char* data(int64_t ring) const;
  int64_t rings() const { return rings_; }
  int64_t ring_bytes() const { return ring_bytes_; }
  // For handing it on; closed by close_fd(), the mapping stays.
  int fd() const { return fd_; }
  void close_fd();

 private:
  struct Header;
  void map(int fd, int64_t bytes);
  int fd_ = -1;
  char* base_ = nullptr;
  int64_t bytes_ = 0, rings_ = 0, ring_bytes_ = 0;
};

}  // namespace ballast
