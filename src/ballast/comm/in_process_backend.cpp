#include "ballast/comm/in_process_backend.h"

#include <cstring>

#include "ballast/comm/c10d_communicator.h"

namespace ballast {

namespace {

constexpr std::chrono::milliseconds kLookAround{20};
constexpr int64_t kEarlyCopy = 64 << 10;  // bytes; above, one copy saved is worth more than a sender that waits

uint64_t key_of(int from, int tag) {
  return static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(tag);
}

std::exception_ptr failure_of(const std::string& text) { return std::make_exception_ptr(std::runtime_error(text)); }
}  // namespace

InProcessHub::InProcessHub(int ranks, std::unique_ptr<RateLimit> links)
    : links_(std::move(links)), gone_(new std::atomic<bool>[static_cast<size_t>(ranks)]) {
  for (int rank = 0; rank < ranks; ++rank) {
    boxes_.push_back(std::make_unique<Box>());
    gone_[static_cast<size_t>(rank)] = false;
  }
}

void InProcessHub::refuse_if_ended(int from, int to) const {
  if (failed_) throw std::runtime_error(known()->reason);
  for (const int rank : {from, to}) {
    if (gone_[static_cast<size_t>(rank)]) throw std::runtime_error(fmt::format("rank {} has left", rank));
  }
}

RateLimit::Clock::time_point InProcessHub::arrival(const InProcessWork& work, int64_t bytes) {
  if (links_ == nullptr) return {};
  return links_->arrival(work.from, work.to, bytes, RateLimit::Clock::now());
}

// Outside the box's lock: the letters are taken out, nobody else sees them.
void InProcessHub::deliver(Letter& from, Letter& to) {
  if (from.bytes != to.bytes) {
    const std::exception_ptr mismatch =
        failure_of(fmt::format("a message of {} bytes met a receive of {} bytes", from.bytes, to.bytes));
    if (from.work) from.work->complete(mismatch);
    to.work->complete(mismatch);
    return;
  }
  if (from.bytes > 0) std::memcpy(to.data, from.copy ? from.copy.get() : from.data, static_cast<size_t>(from.bytes));
  const auto there = from.copy ? from.arrival : arrival(*to.work, from.bytes);
  if (from.work) from.work->complete_at(there);
  to.work->complete_at(there);
}

c10::intrusive_ptr<InProcessWork> InProcessHub::send(int from, int to, int tag, const char* data, int64_t bytes) {
  auto work = c10::make_intrusive<InProcessWork>(this, c10d::OpType::SEND, from, to, tag);
  Letter letter{const_cast<char*>(data), bytes, work, nullptr};
  Letter partner{};
  Box& box = *boxes_[static_cast<size_t>(to)];
  {
    const std::lock_guard lock(box.mutex);
    refuse_if_ended(from, to);
    const auto [queue, fresh] = box.queues.try_emplace(key_of(from, tag));
    if (fresh || queue->second.receives.empty()) {
      if (bytes <= kEarlyCopy) {
        letter.copy.reset(new char[static_cast<size_t>(std::max<int64_t>(bytes, 1))]);
        if (bytes > 0) std::memcpy(letter.copy.get(), data, static_cast<size_t>(bytes));
        letter.arrival = arrival(*work, bytes);
        letter.work.reset();
      }
      queue->second.sends.push_back(std::move(letter));
      if (bytes <= kEarlyCopy) work->complete();
      return work;
    }
    partner = std::move(queue->second.receives.front());
    queue->second.receives.pop_front();
    if (queue->second.receives.empty()) box.queues.erase(queue);
  }
  deliver(letter, partner);
  return work;
}

c10::intrusive_ptr<InProcessWork> InProcessHub::receive(int from, int to, int tag, char* data, int64_t bytes) {
  auto work = c10::make_intrusive<InProcessWork>(this, c10d::OpType::RECV, from, to, tag);
  Letter letter{data, bytes, work, nullptr};
  Letter partner{};
  Box& box = *boxes_[static_cast<size_t>(to)];
  {
    const std::lock_guard lock(box.mutex);
    const auto queue = box.queues.find(key_of(from, tag));
    if (queue == box.queues.end() || queue->second.sends.empty()) {
      refuse_if_ended(from, to);  // what a rank sent before it left is still delivered
      box.queues[key_of(from, tag)].receives.push_back(std::move(letter));
      return work;
    }
    partner = std::move(queue->second.sends.front());
    queue->second.sends.pop_front();
    if (queue->second.sends.empty()) box.queues.erase(queue);
  }
  deliver(partner, letter);
  return work;
}

void InProcessHub::cancel(InProcessWork& work) {
  Box& box = *boxes_[static_cast<size_t>(work.to)];
  {
    const std::lock_guard lock(box.mutex);
    const auto queue = box.queues.find(key_of(work.from, work.tag));
    if (queue != box.queues.end()) {
      for (std::deque<Letter>* letters : {&queue->second.sends, &queue->second.receives}) {
        std::erase_if(*letters, [&](const Letter& letter) {
          if (letter.work.get() != &work) return false;
          work.complete(failure_of("cancelled"));
          return true;
        });
      }
      if (queue->second.sends.empty() && queue->second.receives.empty()) box.queues.erase(queue);
    }
  }
  // Not in the box: complete, or being copied by the partner at this moment.
  work.await_buffers();
}

void InProcessHub::fail_waiting(int rank, const std::string& reason) {
  const std::exception_ptr failure = failure_of(reason);
  for (size_t to = 0; to < boxes_.size(); ++to) {
    Box& box = *boxes_[to];
    const std::lock_guard lock(box.mutex);
    for (auto queue = box.queues.begin(); queue != box.queues.end();) {
      const int from = static_cast<int>(queue->first >> 32);
      if (rank >= 0 && rank != from && rank != static_cast<int>(to)) {
        ++queue;
        continue;
      }
      for (std::deque<Letter>* letters : {&queue->second.sends, &queue->second.receives}) {
        std::erase_if(*letters, [&](Letter& letter) {
          if (!letter.work) return false;  // an early copy needs nobody any more
          letter.work->complete(failure);
          return true;
        });
      }
      queue =
          queue->second.sends.empty() && queue->second.receives.empty() ? box.queues.erase(queue) : std::next(queue);
    }
  }
}

void InProcessHub::leave(int rank) {
  gone_[static_cast<size_t>(rank)] = true;
  fail_waiting(rank, fmt::format("rank {} has left", rank));
}

void InProcessHub::announce(const Failure& failure) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failed_) return;
    failure_ = failure;
    failed_ = true;
  }
  fail_waiting(-1, failure.reason);
}

std::optional<Failure> InProcessHub::known() const {
  if (!failed_) return std::nullopt;
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

std::optional<Failure> InProcessHub::await(std::chrono::milliseconds) { return known(); }

bool InProcessWork::wait(std::chrono::milliseconds timeout) {
  const auto began = RateLimit::Clock::now();
  std::unique_lock lock(mutex_);
  const auto done = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, done);
  } else if (!cv_.wait_for(lock, timeout, done)) {
    return false;
  }
  if (exception_) std::rethrow_exception(exception_);
  if (arrival_ == RateLimit::Clock::time_point{}) return true;
  // Still on the link. Failures of others are looked for now and then: nobody signals this condition any more.
  const auto end = timeout == kNoTimeout ? RateLimit::Clock::time_point::max() : began + timeout;
  while (RateLimit::Clock::now() < arrival_) {
    if (const auto failure = hub_->known()) throw std::runtime_error(failure->reason);
    if (RateLimit::Clock::now() >= end) return false;
    cv_.wait_until(lock, std::min({arrival_, end, RateLimit::Clock::now() + kLookAround}));
  }
  return true;
}

void InProcessWork::await_buffers() {
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [this] { return completed_; });
}

c10::intrusive_ptr<c10d::Work> InProcessBackend::finished(c10d::OpType type) const {
  auto work = c10::make_intrusive<InProcessWork>(nullptr, type, 0, 0, 0);
  work->complete();
  return work;
}

c10::intrusive_ptr<c10d::Work> InProcessBackend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors);
  return hub_->send(getRank(), to, tag, static_cast<const char*>(tensor.const_data_ptr()),
                    static_cast<int64_t>(tensor.nbytes()));
}

c10::intrusive_ptr<c10d::Work> InProcessBackend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  const at::Tensor& tensor = only(tensors);
  return hub_->receive(from, getRank(), tag, static_cast<char*>(tensor.mutable_data_ptr()),
                       static_cast<int64_t>(tensor.nbytes()));
}

std::vector<std::unique_ptr<Communicator>> make_in_process(const Topology& topology,
                                                           const CommunicatorOptions& options) {
  const int ranks = static_cast<int>(topology.ranks());
  const auto hub =
      std::make_shared<InProcessHub>(ranks, options.limit_links ? std::make_unique<RateLimit>(topology) : nullptr);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<C10dCommunicator>(
        topology, c10::make_intrusive<InProcessBackend>(hub, rank, ranks), hub, options, /*interruptible=*/false));
  }
  return communicators;
}

}  // namespace ballast
