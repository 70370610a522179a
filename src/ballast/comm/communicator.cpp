// What all back ends share: messages to oneself, empty messages, counting per level, and the control plane on top of
// exchanges.
#include "ballast/comm/communicator.h"

#include <cstring>

#include "ballast/base/check.h"

namespace ballast {

Communicator::Communicator(const Topology& topology) : topology_(topology), counters_(topology.levels().size()), layout_counters_(topology.levels().size()) {}

void Communicator::exchange(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag,
                            const Purpose& purpose) {
  BALLAST_CHECK(tag < kTagLimit, "tag {} of '{}' is not below 2^30", tag, purpose.what);
  run(sends, receives, tag, purpose);
  count(sends, tag);
}

void Communicator::run(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag,
                       const Purpose& purpose) {
  std::vector<Send> remote_sends;
  std::vector<Receive> remote_receives;
  remote_sends.reserve(sends.size());
  remote_receives.reserve(receives.size());
  std::vector<Receive> own;
  for (const Receive& receive : receives) {
    BALLAST_CHECK(receive.from >= 0 && receive.from < size() && receive.bytes >= 0,
                  "receive {} bytes from rank {} of {} in '{}'", receive.bytes, receive.from, size(), purpose.what);
    if (receive.bytes == 0) continue;
    if (receive.from == rank()) {
      own.push_back(receive);
    } else {
      remote_receives.push_back(receive);
    }
  }
  size_t next_own = 0;
  for (const Send& send : sends) {
    BALLAST_CHECK(send.to >= 0 && send.to < size() && send.bytes >= 0, "send {} bytes to rank {} of {} in '{}'",
                  send.bytes, send.to, size(), purpose.what);
    if (send.bytes == 0) continue;
    if (send.to != rank()) {
      remote_sends.push_back(send);
      continue;
    }
    BALLAST_CHECK(next_own < own.size() && own[next_own].bytes == send.bytes,
                  "message of {} bytes to itself in '{}' has no receive", send.bytes, purpose.what);
    if (own[next_own].data != send.data) std::memmove(own[next_own].data, send.data, static_cast<size_t>(send.bytes));
    ++next_own;
  }
  BALLAST_CHECK(next_own == own.size(), "receive from itself in '{}' has no send", purpose.what);
  if (remote_sends.empty() && remote_receives.empty()) return;
  transfer(remote_sends, remote_receives, tag, purpose);
}

void Communicator::count(std::span<const Send> sends, uint64_t tag) {
  std::vector<std::atomic<int64_t>>& counters = tag < kLayoutTag ? counters_ : layout_counters_;
  for (const Send& send : sends) {
    const int level = topology_.common_level(rank(), send.to);
    if (level != kSelf) counters[static_cast<size_t>(level)].fetch_add(send.bytes, std::memory_order_relaxed);
  }
}

namespace {

std::vector<int64_t> values_of(const std::vector<std::atomic<int64_t>>& counters) {
  std::vector<int64_t> values;
  for (const auto& counter : counters) values.push_back(counter.load(std::memory_order_relaxed));
  return values;
}

}  // namespace

std::vector<int64_t> Communicator::bytes_sent() const { return values_of(counters_); }
std::vector<int64_t> Communicator::layout_bytes_sent() const { return values_of(layout_counters_); }

void Communicator::all_gather_fixed(const void* mine, int64_t bytes, void* all, const std::string& what) {
  const uint64_t sequence = control_sequence_++;
  char* const parts = static_cast<char*>(all);
  std::vector<Send> sends;
  std::vector<Receive> receives;
  if (bytes > 0 && parts + rank() * bytes != mine)
    std::memmove(parts + rank() * bytes, mine, static_cast<size_t>(bytes));
  for (int64_t k = 1; k < size(); ++k) {
    const int64_t to = (rank() + k) % size(), from = (rank() + size() - k) % size();
    sends.push_back({to, mine, bytes});
    receives.push_back({from, parts + from * bytes, bytes});
  }
  run(sends, receives, kTagLimit + sequence % kTagLimit, {what, sequence});
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine, const std::string& what) {
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  all_gather_fixed(&length, sizeof length, lengths.data(), what);
  std::vector<std::string> texts(lengths.size());
  const uint64_t sequence = control_sequence_++;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int64_t k = 1; k < size(); ++k) {
    const int64_t to = (rank() + k) % size(), from = (rank() + size() - k) % size();
    std::string& text = texts[static_cast<size_t>(from)];
    text.resize(static_cast<size_t>(lengths[static_cast<size_t>(from)]));
    sends.push_back({to, mine.data(), length});
    receives.push_back({from, text.data(), static_cast<int64_t>(text.size())});
  }
  texts[static_cast<size_t>(rank())] = mine;
  run(sends, receives, kTagLimit + sequence % kTagLimit, {what, sequence});
  return texts;
}

namespace {

class Single final : public Communicator {
 public:
  Single() : Communicator(Topology::flat(1)) {}
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::string name() const override { return "single"; }
  void abort(const std::string&) noexcept override {}

 protected:
  void transfer(std::span<const Send>, std::span<const Receive>, uint64_t, const Purpose& purpose) override {
    BALLAST_CHECK(false, "one rank alone has no peer in '{}'", purpose.what);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single() { return std::make_unique<Single>(); }

}  // namespace ballast
