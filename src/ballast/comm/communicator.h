#pragma once
// What every rank uses to talk to the others: exchanges over any subset of ranks (data plane, counted per level), and a few
// small agreements (control plane, not counted). Back ends: gloo (TCP between processes), in-process (thread-ranks), a singleton.
// Collectives are built from exchanges in collectives.h, so bytes and the order of sums are ours on every back end.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/plan/tags.h"
#include "ballast/plan/topology.h"

namespace ballast {

struct Send { int64_t to; const void* data; int64_t bytes; };
struct Receive { int64_t from; void* data; int64_t bytes; };

// What a blocking call is about, for the watchdog's message: "reduce block.3, op 117".
struct Purpose { std::string what; uint64_t sequence = 0; };

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::string name() const = 0;   // "gloo", "in-process", "single"

  // All receives are posted first, posting never blocks, returns when all are complete. `tag` pairs the two ends: equal on both, below
  // kTagLimit, and unique among exchanges in flight. Several messages to one peer arrive in the order given. May be called from several
  // threads (lanes) at once with different tags. A message to itself is a copy. Zero-byte messages are skipped on both ends. Throws
  // Error(PeerLost) naming peer, purpose and sequence number when a peer has died or the deadline passes, on every rank that waits for it.
  void exchange(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag, const Purpose& purpose);

  // Control plane: small, not counted, built from exchanges. Every rank calls these in the same order, one at a time. All throw
  // Error(PeerLost) likewise.
  std::vector<std::string> all_gather_text(const std::string& mine, const std::string& what);  // by rank
  void barrier(const std::string& what) { all_gather_text("", what); }
  // `all` holds size() * bytes, by rank; `bytes` is the same on every rank. One round of messages.
  void all_gather_fixed(const void* mine, int64_t bytes, void* all, const std::string& what);

  // Tells the others to stop waiting: a rank that fails calls this before it unwinds. `reason` shows in their error.
  virtual void abort(const std::string& reason) noexcept = 0;

  // Payload bytes this rank has sent so far, by level of the topology (index as in Topology; the innermost level holding both ends): of hops, and
  // of exchanges whose tag is kLayoutTag or above.
  std::vector<int64_t> bytes_sent() const;
  std::vector<int64_t> layout_bytes_sent() const;

 protected:
  explicit Communicator(const Topology& topology);

  // What a back end does: peers are other ranks, no message is empty, the tag may be any below 2 * kTagLimit.
  virtual void transfer(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag, const Purpose& purpose) = 0;

 private:
  void run(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag, const Purpose& purpose);
  void count(std::span<const Send> sends, uint64_t tag);

  Topology topology_;
  std::vector<std::atomic<int64_t>> counters_, layout_counters_;  // by level
  std::atomic<uint64_t> control_sequence_{0};
};

struct CommunicatorOptions {
  std::chrono::milliseconds deadline{300000};  // of every blocking call
  int64_t longest_message = int64_t{1} << 30;  // bytes; longer ones travel in several pieces
  // In-process only: links have the bandwidths and latencies of the topology (rate_limit.h), for every message.
  bool limit_links = false;
};

// One rank alone; every exchange is with itself.
std::unique_ptr<Communicator> make_single();
// `ranks` communicators for threads of this process, connected to each other.
std::vector<std::unique_ptr<Communicator>> make_in_process(const Topology& topology, const CommunicatorOptions& options = {});

}  // namespace ballast
