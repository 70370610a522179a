#pragma once
// What one rank does with one other rank of its host, over a ring in each direction.
//
// Protocol. A posted receive is granted: its receiver writes {tag, bytes, id} to the sender. The sender pairs grants
// and sends of one tag in the order given, and only then writes the payload, in chunks that carry the id. Hence:
//   1. every payload byte in a ring has a buffer that waits for it, so a reader can always empty its ring: no message
//      stands in the way of another tag, and nothing is stored on the side;
//   2. grants go before chunks, and the chunks of all messages under way take turns, so a short message overtakes a
//   long
//      one to the same rank;
//   3. a send is complete once its last chunk is in the ring. It needs its sender no more: it can be read after the
//      sender has left or died, and what was not written whole never completes;
//   4. posting writes what fits and returns; the rest is moved by whoever waits (ShmBackend).
// Each end of a ring is used under the link's lock, which is held for copies of at most one ring's size.
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>

#include "ballast/comm/shm_ring.h"
#include "ballast/comm/shm_work.h"

namespace ballast {

struct ShmMoved {
  bool any = false;        // something was read or written
  bool completed = false;  // a work has ended
  bool more = false;       // writing stopped though there may be room: whoever leads must go on
  void operator+=(const ShmMoved& other) { any |= other.any, completed |= other.completed, more |= other.more; }
};

class ShmLink {
 public:
  ShmLink(int peer, ShmRingWriter out, ShmRingReader in, ShmBell& peer_bell)
      : peer_(peer), out_(out), in_(in), peer_bell_(&peer_bell) {}
  int peer() const { return peer_; }
  // Throw if the peer is lost. `work` completes, in some later move(), when its buffer is no longer needed.
  ShmMoved send(c10::intrusive_ptr<ShmWork> work, int tag, const char* data, int64_t bytes);
  ShmMoved receive(c10::intrusive_ptr<ShmWork> work, int tag, char* data, int64_t bytes);
  // Reads what has come and writes what there is room for.
  ShmMoved move();
  // After it returns the work's buffer is no longer touched; the work is complete or failed.
  void cancel(ShmWork& work);
  // The peer is gone: reads what it has left behind, fails the rest.
  void lose(const std::string& reason);

 private:
  struct Sending {
    c10::intrusive_ptr<ShmWork> work;
    const char* data;
    int64_t bytes, done;
    uint64_t id;  // once paired
  };
  struct Receiving {
    c10::intrusive_ptr<ShmWork> work;
    char* data;
    int64_t bytes, done;
  };
  struct Grant {
    uint64_t id;
    int64_t bytes;
  };
  struct Waiting {  // under one tag; one of the two is empty
    std::deque<Sending> sends;
    std::deque<Grant> grants;
  };
  void pair(Sending send, Grant grant, ShmMoved& moved);
  void read(ShmMoved& moved);
  void write(ShmMoved& moved);
  void refuse_if_lost() const;

  const int peer_;
  std::mutex mutex_;
  ShmRingWriter out_;
  ShmRingReader in_;
  ShmBell* peer_bell_;
  std::unordered_map<int64_t, Waiting> waiting_;       // by tag: sends without a grant, grants without a send
  std::deque<Sending> paired_;                         // take turns
  std::unordered_map<uint64_t, Receiving> receiving_;  // by id
  std::deque<ShmRecord> notes_;                        // grants and mismatches that wait for room
  uint64_t next_id_ = 0;
  std::string lost_;  // why, once it is
};

}  // namespace ballast
