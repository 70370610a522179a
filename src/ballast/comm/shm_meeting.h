#pragma once
// How the ranks of one host hand each other their shared memory: over local sockets with random names that the
// rendezvous store tells. The names are abstract, so nothing is left in any file system, and they are seen in one
// network namespace only. The sockets stay open: the end of a process closes them, which is how its peers notice.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ballast/comm/failure.h"
#include "ballast/comm/shm_segment.h"

namespace ballast {

// What a rank shows before it meets the others: by then everything that the system may refuse has been tried.
struct ShmOffer {
  std::unique_ptr<ShmSegment> segment;
  std::string name;  // of the socket that listens
  int listener = -1;
  ShmOffer() = default;
  ShmOffer(ShmOffer&& other) noexcept
      : segment(std::move(other.segment)), name(std::move(other.name)), listener(std::exchange(other.listener, -1)) {}
  ShmOffer& operator=(ShmOffer&&) = delete;
  ~ShmOffer();
};

// `ranks` of this host, with a ring of `ring_bytes` between each two and in each direction. Throws Error(Environment).
ShmOffer offer_memory(size_t ranks, int64_t ring_bytes);

struct ShmPeer {
  int64_t rank;
  std::unique_ptr<ShmSegment> segment;  // where this rank writes
  int socket = -1;
};

struct ShmNeighbours {
  std::unique_ptr<ShmSegment> mine;  // where the others write
  std::vector<ShmPeer> peers;        // by rank
  ShmNeighbours() = default;
  ShmNeighbours(ShmNeighbours&&) = default;
  ShmNeighbours& operator=(ShmNeighbours&&) = delete;
  ~ShmNeighbours();
};

// The ring that the rank at place `from` of the local ranks has in the segment of the one at place `to`.
constexpr int64_t ring_of(int64_t from, int64_t to) { return from < to ? from : from - 1; }

// `local` are the ranks of this host, ascending, `rank` among them; `names` are those of all offers, by rank. All ranks
// of the host call it. Throws Error(PeerLost) when one does not come within the deadline, Error(Environment) where the
// system refuses.
ShmNeighbours meet_neighbours(ShmOffer offer, const std::vector<std::string>& names, const FailureChannel& watch,
                              const std::vector<int64_t>& local, int64_t rank, std::chrono::milliseconds deadline);

}  // namespace ballast
