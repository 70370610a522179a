#include "ballast/comm/c10d_communicator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ballast/base/check.h"

namespace ballast {

namespace {
using Clock = std::chrono::steady_clock;

at::Tensor bytes_at(const void* data, int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::TensorOptions(at::kByte));
}

// Given in words: without it Gloo takes the time-out that its connections were made with.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) * 1e-3; }

// c10 appends a stack trace to its messages; the first line says what happened.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
}  // namespace

C10dCommunicator::C10dCommunicator(const Topology& topology, c10::intrusive_ptr<c10d::Backend> backend,
                                   std::shared_ptr<FailureChannel> channel, const CommunicatorOptions& options,
                                   bool interruptible)
    : C10dCommunicator(topology, Routes{nullptr, std::move(backend), {}}, std::move(channel), options, interruptible) {}

C10dCommunicator::C10dCommunicator(const Topology& topology, Routes routes, std::shared_ptr<FailureChannel> channel,
                                   const CommunicatorOptions& options, bool interruptible)
    : Communicator(topology),
      routes_(std::move(routes)),
      channel_(std::move(channel)),
      options_(options),
      interruptible_(interruptible) {
  const c10d::Backend& any = routes_.far ? *routes_.far : *routes_.near;
  rank_ = any.getRank();
  size_ = any.getSize();
  routes_.is_near.resize(static_cast<size_t>(size_), false);
  name_ = any.getBackendName();
  BALLAST_CHECK(topology.ranks() == size_, "topology of {} ranks over {} ranks", topology.ranks(), size_);
  if (interruptible_) channel_->on_failure([this] { interrupt(); });
}

C10dCommunicator::~C10dCommunicator() {
  if (interruptible_) channel_->on_failure(nullptr);
}

void C10dCommunicator::abort(const std::string& reason) noexcept {
  try {
    channel_->announce({rank_, rank_, reason});
  } catch (...) {  // telling the others is best effort: the error that led here matters more
  }
}

void C10dCommunicator::post(Flight& flight, std::span<const Send> sends, std::span<const Receive> receives, int tag,
                            int64_t& peer) {
  std::vector<at::Tensor> tensor(1);
  const auto pieces = [&](const void* data, int64_t bytes, auto&& each) {
    const bool near = routes_.is_near[static_cast<size_t>(peer)];
    c10d::Backend& backend = near ? *routes_.near : *routes_.far;
    for (int64_t begin = 0; begin < bytes; begin += options_.longest_message) {
      tensor[0] = bytes_at(static_cast<const char*>(data) + begin, std::min(options_.longest_message, bytes - begin));
      flight.pending.push_back({each(backend), peer, near});
    }
  };
  const std::lock_guard lock(posting_);
  for (const Receive& receive : receives) {
    peer = receive.from;
    pieces(receive.data, receive.bytes,
           [&](c10d::Backend& backend) { return backend.recv(tensor, static_cast<int>(peer), tag); });
  }
  for (const Send& send : sends) {
    peer = send.to;
    pieces(send.data, send.bytes,
           [&](c10d::Backend& backend) { return backend.send(tensor, static_cast<int>(peer), tag); });
  }
  std::stable_partition(flight.pending.begin(), flight.pending.end(), [](const Pending& each) { return each.near; });
}

void C10dCommunicator::wait(Flight& flight, int64_t& peer) {
  for (Pending& pending : flight.pending) {
    peer = pending.peer;
    bool completed = false;
    if (interruptible_) {
      completed = pending.work->wait(kForEver);
    } else {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(flight.deadline - Clock::now());
      completed = pending.work->wait(std::max(left, std::chrono::milliseconds(1)));
      if (!completed) flight.expired = true;
    }
    if (!completed) throw std::runtime_error("interrupted");
    pending.done = true;
  }
}

void C10dCommunicator::transfer(std::span<const Send> sends, std::span<const Receive> receives, uint64_t tag,
                                const Purpose& purpose) {
  if (const auto failure = channel_->known()) refuse(*failure, purpose);
  Flight flight;
  flight.pending.reserve(sends.size() + receives.size());
  flight.deadline = Clock::now() + options_.deadline;
  int64_t peer = -1;
  std::string detail;
  std::list<Flight*>::iterator entry;
  bool registered = false;
  try {
    post(flight, sends, receives, static_cast<int>(tag), peer);
    if (interruptible_) {
      {
        const std::lock_guard lock(flights_mutex_);
        entry = flights_.insert(flights_.end(), &flight);
        registered = true;
      }
      if (channel_->known()) interrupt();  // it may have become known between the posting and the registration
    }
    wait(flight, peer);
  } catch (const std::exception& error) {
    detail = first_line(error.what());
  }
  if (registered) {
    const std::lock_guard lock(flights_mutex_);
    flights_.erase(entry);
  }
  if (detail.empty()) return;
  try {
    fail(flight, peer, detail, purpose);
  } catch (...) {
    // The caller's buffers may go as soon as this returns: nothing may read or write them any more.
    for (const Pending& pending : flight.pending) {
      if (!pending.done) pending.work->abort();
    }
    flight.pending.clear();
    throw;
  }
}

void C10dCommunicator::fail(Flight& flight, int64_t peer, const std::string& detail, const Purpose& purpose) {
  // Until this throws, the work objects stand: a late message still finds its buffer. Gloo closes the connection over
  // one that does not, and the peer at its other end would be blamed by a rank that is only making sure whom to blame.
  std::set<int64_t> waiting;
  for (const Pending& pending : flight.pending) {
    if (!pending.done) waiting.insert(pending.peer);
  }
  if (const auto failure = channel_->known()) refuse(*failure, purpose);
  if (flight.expired) {
    const std::vector<int64_t> peers(waiting.begin(), waiting.end());
    const std::vector<int64_t> silent = channel_->silent();
    if (const auto failure = channel_->known()) refuse(*failure, purpose);
    const Failure failure{
        silent.empty() ? peer : silent.front(), rank_,
        fmt::format("no answer within {} s in '{}' (sequence {}), waiting for rank {}{}", seconds(options_.deadline),
                    purpose.what, purpose.sequence, fmt::join(peers, ", "),
                    silent.empty() ? "" : fmt::format("; no sign of life from rank {}", fmt::join(silent, ", ")))};
    channel_->announce(failure);
    refuse(channel_->known().value_or(failure), purpose);
  }
  // A broken connection: perhaps the peer only left because it had lost somebody else, and says so.
  if (const auto failure = channel_->await(std::chrono::milliseconds(1000))) refuse(*failure, purpose);
  const Failure failure{
      peer, rank_, fmt::format("connection lost in '{}' (sequence {}): {}", purpose.what, purpose.sequence, detail)};
  channel_->announce(failure);
  refuse(channel_->known().value_or(failure), purpose);
}

void C10dCommunicator::refuse(const Failure& failure, const Purpose& purpose) const {
  const std::string who = failure.rank < 0 ? "the launcher" : fmt::format("rank {}", failure.rank);
  if (failure.rank == rank_) {
    throw Error(ErrorKind::PeerLost, fmt::format("the other ranks have given up rank {} in '{}' (sequence {})", rank_,
                                                 purpose.what, purpose.sequence))
        .at(fmt::format("rank {} of {}, {}", rank_, size_, name()))
        .found(fmt::format("{} (said by rank {})", failure.reason, failure.told_by))
        .cure("if it was only slow, raise the deadline, train.timeout");
  }
  const std::string said = failure.told_by == rank_ || failure.told_by == failure.rank
                               ? ""
                               : fmt::format(" (said by rank {})", failure.told_by);
  throw Error(ErrorKind::PeerLost,
              fmt::format("{} is lost to rank {} in '{}' (sequence {})", who, rank_, purpose.what, purpose.sequence))
      .at(fmt::format("rank {} of {}, {}", rank_, size_, name()))
      .found(failure.reason + said)
      .cure(fmt::format("see the messages of {}; if it was only slow, raise the deadline, train.timeout", who));
}

void C10dCommunicator::interrupt() {
  const std::lock_guard lock(flights_mutex_);
  for (Flight* flight : flights_) {
    for (Pending& pending : flight->pending) pending.work->abort();
  }
}

void C10dCommunicator::expire() {
  const auto now = Clock::now();
  const std::lock_guard lock(flights_mutex_);
  for (Flight* flight : flights_) {
    if (now < flight->deadline || flight->expired.exchange(true)) continue;
    for (Pending& pending : flight->pending) pending.work->abort();
  }
}

}  // namespace ballast
