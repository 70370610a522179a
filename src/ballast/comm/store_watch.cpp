#include "ballast/comm/store_watch.h"

#include <fmt/format.h>

#include <cstdio>

namespace ballast {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kInterval(250);     // between two looks at the store
constexpr std::chrono::milliseconds kLife(1250);        // a rank whose heartbeat stood still for so long is silent
constexpr std::chrono::milliseconds kUnanswered(2500);  // a store that answers nothing for so long is lost

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::string beat_key(int64_t rank) { return "beat/" + std::to_string(rank); }

// "rank told_by reason"
std::string encode(const Failure& failure) {
  return fmt::format("{} {} {}", failure.rank, failure.told_by, failure.reason);
}
Failure decode(const std::string& text) {
  Failure failure{-1, -1, text};
  long long rank = -1, told_by = -1;
  int length = 0;
  if (std::sscanf(text.c_str(), "%lld %lld %n", &rank, &told_by, &length) == 2)
    failure = {rank, told_by, text.substr(static_cast<size_t>(length))};
  return failure;
}

}  // namespace

struct StoreWatch::State {
  c10::intrusive_ptr<c10d::Store> store;
  int64_t rank, ranks, keeper;

  mutable std::mutex mutex;
  std::condition_variable wake;     // of the thread
  std::condition_variable changed;  // of those who wait for it
  std::optional<Failure> failure, to_announce;
  std::function<void()> interrupt;
  bool stop = false, leaving = false, ended = false, lost = false;
  std::chrono::milliseconds patience{0};
  int diagnosing = 0;   // callers of silent()
  bool looked = false;  // heartbeats below are of this diagnosis
  std::vector<std::string> beats;
  std::vector<Clock::time_point> beat_since;

  // With the lock held.
  void fail(std::unique_lock<std::mutex>& lock, const Failure& what) {
    if (failure) return;
    failure = what;
    changed.notify_all();
    if (interrupt) interrupt();
    (void)lock;
  }
};

StoreWatch::StoreWatch(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t ranks, int64_t keeper)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->rank = rank;
  state_->ranks = ranks;
  state_->keeper = keeper;
  state_->store->set(beat_key(rank), bytes_of("0"));
  thread_ = std::thread(&StoreWatch::run, state_);
}

StoreWatch::~StoreWatch() { leave(std::chrono::milliseconds(0)); }

void StoreWatch::run(std::shared_ptr<State> state) {
  State& s = *state;
  uint64_t beat = 0;
  std::vector<std::string> beat_keys;
  for (int64_t rank = 0; rank < s.ranks; ++rank) beat_keys.push_back(beat_key(rank));
  std::unique_lock lock(s.mutex);
  try {
    while (!s.stop) {
      const std::optional<Failure> to_announce = s.to_announce;
      const bool diagnosing = s.diagnosing > 0, known = s.failure.has_value();
      lock.unlock();
      s.store->set(beat_key(s.rank), bytes_of(std::to_string(++beat)));
      std::string standing;
      if (to_announce) {
        standing = text_of(s.store->compareSet("failure", bytes_of(""), bytes_of(encode(*to_announce))));
      } else if (!known && s.store->check({"failure"})) {
        standing = text_of(s.store->get("failure"));
      }
      std::vector<std::vector<uint8_t>> beats;
      if (diagnosing) beats = s.store->multiGet(beat_keys);
      lock.lock();
      if (to_announce) s.to_announce.reset();
      if (!standing.empty()) s.fail(lock, decode(standing));
      if (diagnosing) {
        const auto now = Clock::now();
        if (!s.looked) s.beats.assign(beats.size(), "?"), s.beat_since.assign(beats.size(), now);
        s.looked = true;
        for (size_t i = 0; i < beats.size(); ++i) {
          const std::string text = text_of(beats[i]);
          if (text != s.beats[i]) s.beats[i] = text, s.beat_since[i] = now;
        }
      }
      s.changed.notify_all();
      s.wake.wait_for(lock, kInterval, [&] { return s.stop || (s.to_announce && !s.failure); });
    }
    // Goodbye. The keeper stays until all have said it, or its patience ends.
    lock.unlock();
    const auto until = Clock::now() + s.patience;
    int64_t left = s.store->add("left", 1);
    while (s.rank == s.keeper && left < s.ranks && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      left = s.store->add("left", 0);
    }
    lock.lock();
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    if (!s.stop) {
      const std::string what = error.what();
      s.lost = true;
      s.fail(lock, {s.keeper, s.rank,
                    fmt::format("the rendezvous store that {} keeps is gone: {}",
                                s.keeper < 0 ? "the launcher" : fmt::format("rank {}", s.keeper),
                                what.substr(0, what.find('\n')))});
    }
  }
  s.ended = true;
  s.changed.notify_all();
}

void StoreWatch::announce(const Failure& failure) noexcept {
  try {
    std::unique_lock lock(state_->mutex);
    if (state_->failure || state_->ended) return;
    state_->to_announce = failure;
    state_->wake.notify_all();
    // A store that does not answer in time must not hold up a rank that is about to end.
    state_->changed.wait_for(lock, std::chrono::milliseconds(1000), [&] { return state_->failure || state_->ended; });
    state_->fail(lock, failure);
  } catch (...) {  // best effort: the failure that is being announced matters more
  }
}

std::optional<Failure> StoreWatch::known() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

std::optional<Failure> StoreWatch::await(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, patience, [&] { return state_->failure.has_value(); });
  return state_->failure;
}

std::vector<int64_t> StoreWatch::silent() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (s.diagnosing++ == 0) s.looked = false;
  const auto begin = Clock::now();
  const auto seen_long_enough = [&] { return s.failure || (s.looked && Clock::now() - begin >= kLife + kInterval); };
  bool answered = false;
  while (!(answered = seen_long_enough()) && Clock::now() - begin < kUnanswered)
    s.changed.wait_for(lock, std::chrono::milliseconds(50));
  --s.diagnosing;
  std::vector<int64_t> ranks;
  if (!answered) {
    if (s.keeper >= 0) ranks.push_back(s.keeper);
    return ranks;
  }
  if (s.failure) return ranks;
  const auto now = Clock::now();
  for (size_t rank = 0; rank < s.beat_since.size(); ++rank) {
    if (static_cast<int64_t>(rank) != s.rank && now - s.beat_since[rank] >= kLife)
      ranks.push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

void StoreWatch::on_failure(std::function<void()> interrupt) {
  const std::lock_guard lock(state_->mutex);
  state_->interrupt = std::move(interrupt);
  if (state_->failure && state_->interrupt) state_->interrupt();
}

void StoreWatch::leave(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(state_->mutex);
    state_->patience = state_->failure ? std::min(patience, std::chrono::milliseconds(2000)) : patience;
    state_->stop = true;
    state_->wake.notify_all();
    state_->changed.wait_for(lock, state_->patience + std::chrono::milliseconds(1000), [&] { return state_->ended; });
    if (!state_->ended) {  // hangs in a store that does not answer
      lock.unlock();
      thread_.detach();
      return;
    }
  }
  thread_.join();
}

}  // namespace ballast
