#include "ballast/comm/shm_link.h"

#include <fmt/format.h>

#include "ballast/base/check.h"

namespace ballast {

namespace {
std::exception_ptr failure_of(const std::string& text) { return std::make_exception_ptr(std::runtime_error(text)); }
std::string mismatch(int64_t sent, int64_t awaited) {
  return fmt::format("a message of {} bytes met a receive of {} bytes", sent, awaited);
}
}  // namespace

void ShmLink::refuse_if_lost() const {
  if (!lost_.empty()) throw std::runtime_error(lost_);
}

ShmMoved ShmLink::send(c10::intrusive_ptr<ShmWork> work, int tag, const char* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  refuse_if_lost();
  ShmMoved moved;
  Sending send{std::move(work), data, bytes, 0, 0};
  Waiting& waiting = waiting_[tag];
  if (waiting.grants.empty()) {
    waiting.sends.push_back(std::move(send));
    return moved;
  }
  const Grant grant = waiting.grants.front();
  waiting.grants.pop_front();
  if (waiting.grants.empty()) waiting_.erase(tag);
  pair(std::move(send), grant, moved);
  write(moved);
  return moved;
}

ShmMoved ShmLink::receive(c10::intrusive_ptr<ShmWork> work, int tag, char* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  refuse_if_lost();
  ShmMoved moved;
  const uint64_t id = next_id_++;
  receiving_.emplace(id, Receiving{std::move(work), data, bytes, 0});
  notes_.push_back({ShmRecordKind::Grant, 0, id, bytes, tag});
  write(moved);
  return moved;
}

ShmMoved ShmLink::move() {
  const std::lock_guard lock(mutex_);
  ShmMoved moved;
  if (!lost_.empty()) return moved;
  read(moved);
  write(moved);
  return moved;
}

void ShmLink::pair(Sending send, Grant grant, ShmMoved& moved) {
  send.id = grant.id;
  if (send.bytes == grant.bytes) {
    paired_.push_back(std::move(send));
    return;
  }
  notes_.push_back({ShmRecordKind::Mismatch, 0, grant.id, send.bytes, 0});
  send.work->complete(failure_of(mismatch(send.bytes, grant.bytes)));
  moved.completed = true;
}

void ShmLink::read(ShmMoved& moved) {
  int64_t budget = in_.capacity();
  bool popped = false;
  for (const ShmRecord* record = in_.front(); record != nullptr && budget > 0; record = in_.front()) {
    budget -= static_cast<int64_t>(sizeof(ShmRecord) + record->length);
    if (record->kind == ShmRecordKind::Grant) {
      const Grant grant{record->id, record->bytes};
      Waiting& waiting = waiting_[record->tag];
      if (waiting.sends.empty()) {
        waiting.grants.push_back(grant);
      } else {
        Sending send = std::move(waiting.sends.front());
        waiting.sends.pop_front();
        if (waiting.sends.empty()) waiting_.erase(record->tag);
        pair(std::move(send), grant, moved);
      }
    } else if (const auto found = receiving_.find(record->id); found != receiving_.end()) {  // else it was cancelled
      Receiving& receive = found->second;
      std::exception_ptr failure;
      if (record->kind == ShmRecordKind::Data) {
        BALLAST_CHECK(receive.done + record->length <= receive.bytes, "{} more bytes after {} of {} from rank {}",
                      record->length, receive.done, receive.bytes, peer_);
        if (record->length > 0) in_.payload(receive.data + receive.done, record->length);
        receive.done += record->length;
      } else {
        BALLAST_CHECK(record->kind == ShmRecordKind::Mismatch, "record {} from rank {}",
                      static_cast<uint32_t>(record->kind), peer_);
        failure = failure_of(mismatch(record->bytes, receive.bytes));
      }
      if (failure || receive.done == receive.bytes) {
        receive.work->complete(failure);
        receiving_.erase(found);
        moved.completed = true;
      }
    }
    in_.pop();
    popped = moved.any = true;
  }
  if (popped && in_.feed()) peer_bell_->ring();
}

void ShmLink::write(ShmMoved& moved) {
  const auto put = [&](const ShmRecord& record, const void* payload) {
    if (!out_.write(record, payload)) return false;
    moved.any = true;
    peer_bell_->ring();
    return true;
  };
  while (!notes_.empty()) {
    if (!put(notes_.front(), &notes_.front())) return;
    notes_.pop_front();
  }
  for (int64_t budget = 8 * out_.chunk(); !paired_.empty() && budget > 0;) {
    Sending& send = paired_.front();
    const int64_t length = std::min(send.bytes - send.done, out_.chunk());
    if (!put({ShmRecordKind::Data, static_cast<uint32_t>(length), send.id, 0, 0}, send.data + send.done)) return;
    send.done += length;
    budget -= length;
    if (send.done == send.bytes) {
      send.work->complete();
      moved.completed = true;
    } else if (paired_.size() > 1) {
      paired_.push_back(std::move(send));
    } else {
      continue;
    }
    paired_.pop_front();
  }
  moved.more |= !paired_.empty();
}

void ShmLink::cancel(ShmWork& work) {
  const std::lock_guard lock(mutex_);
  if (work.ended()) return;
  const auto is_it = [&](const auto& entry) { return entry.work.get() == &work; };
  std::erase_if(paired_, is_it);
  std::erase_if(receiving_, [&](const auto& entry) { return is_it(entry.second); });
  for (auto& [tag, waiting] : waiting_) std::erase_if(waiting.sends, is_it);
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.sends.empty() && entry.second.grants.empty(); });
  work.complete(failure_of("cancelled"));
}

void ShmLink::lose(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) return;
  for (ShmMoved moved{true}; moved.any;) {
    moved.any = false;
    read(moved);
  }
  lost_ = reason;
  const std::exception_ptr failure = failure_of(reason);
  for (auto& [id, receive] : receiving_) receive.work->complete(failure);
  for (Sending& send : paired_) send.work->complete(failure);
  for (auto& [tag, waiting] : waiting_) {
    for (Sending& send : waiting.sends) send.work->complete(failure);
  }
  receiving_.clear();
  paired_.clear();
  waiting_.clear();
  notes_.clear();
}

}  // namespace ballast
