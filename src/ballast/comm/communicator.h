#pragma once
// What every rank uses to talk to the others: exchanges over any subset of ranks (data plane, counted per level), and a few
// small agreements (control plane, not counted). Back ends: gloo (TCP between processes), in-process (thread-ranks), a singleton.
// Collectives are built from exchanges in collectives.h, so bytes and the order of sums are ours on every back end.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/plan/topology.h"

namespace ballast {

struct Send { int64_t to; const void* data; int64_t bytes; };
struct Receive { int64_t from; void* data; int64_t bytes; };

// What a blocking call is about, for the watchdog's message: "reduce block.3, op 117".
struct Purpose { std::string what; uint64_t sequence = 0; };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::string name() const = 0;   // "gloo", "in-process", "single"

  // All receives are posted first, posting never blocks, returns when all are complete. `tag` pairs the two ends: equal on both, and
  // unique among exchanges in flight. May be called from several threads (lanes) at once with different tags. A message to itself is a
  // copy. Zero-byte messages are skipped on both ends. Throws Error(PeerLost) naming peer, purpose and sequence number when a peer has
  // died or the deadline passes, on every rank that waits for it.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag, const Purpose& purpose) = 0;

  // Control plane: small, not counted. All throw Error(PeerLost) likewise.
  virtual std::vector<std::string> all_gather_text(const std::string& mine, const std::string& what) = 0;  // by rank
  void barrier(const std::string& what) { all_gather_text("", what); }

  // Tells the others to stop waiting: a rank that fails calls this before it unwinds. `reason` shows in their error.
  virtual void abort(const std::string& reason) noexcept = 0;

  // Payload bytes this rank has sent so far, by level of the topology (index as in Topology; the innermost level holding both ends).
  std::vector<int64_t> bytes_sent() const;
  // Thread-safe; called by back ends for each payload sent.
  void count(int64_t to, int64_t bytes);

 protected:
  explicit Communicator(const Topology& topology);

 private:
  struct Counters;
  std::shared_ptr<Counters> counters_;
};

struct CommunicatorOptions {
  std::chrono::milliseconds deadline{300000};  // of every blocking call
};

// One rank alone; every exchange is with itself.
std::unique_ptr<Communicator> make_single();
// `ranks` communicators for threads of this process, connected to each other.
std::vector<std::unique_ptr<Communicator>> make_in_process(const Topology& topology, const CommunicatorOptions& options = {});

}  // namespace ballast
