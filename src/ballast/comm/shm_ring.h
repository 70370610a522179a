#pragma once
// The two ends of a ring in shared memory: records go in at one end and come out at the other in order. Each end is
// used by one process, which keeps its threads apart by a lock of its own.
#include <algorithm>
#include <cstring>

#include "ballast/comm/shm_segment.h"

namespace ballast {

enum class ShmRecordKind : uint32_t {
  Grant = 1,     // "I wait for `bytes` under `tag`; call it `id`": sent by the receiver
  Data = 2,      // the next `length` bytes of what was granted as `id`
  Mismatch = 3,  // "what I send under `id` has `bytes`": not what was granted
};

struct alignas(64) ShmRecord {
  ShmRecordKind kind;
  uint32_t length;  // bytes that follow, padded to a multiple of 64
  uint64_t id;
  int64_t bytes;
  int64_t tag;
};
static_assert(sizeof(ShmRecord) == 64);

class ShmRingWriter {
 public:
  ShmRingWriter(ShmRingControl& control, char* data, int64_t capacity)
      : control_(&control), data_(data), capacity_(static_cast<uint64_t>(capacity)) {}
  // The longest payload of one record: several fit, so that the two ends work at the same time.
  int64_t chunk() const { return static_cast<int64_t>(capacity_ / 8); }
  // `payload` holds record.length bytes. False if there is no room; the receiver then rings once there is.
  bool write(const ShmRecord& record, const void* payload) {
    const uint64_t needed = sizeof(ShmRecord) + padded(record.length);
    if (!room(needed)) return false;
    std::memcpy(data_ + (head_ & (capacity_ - 1)), &record,
                sizeof record);  // never split: records lie at multiples of 64
    if (record.length > 0) copy_in(head_ + sizeof record, static_cast<const char*>(payload), record.length);
    head_ += needed;
    control_->head.store(head_);
    return true;
  }
  static uint64_t padded(uint64_t bytes) { return (bytes + 63) & ~uint64_t{63}; }

 private:
  bool room(uint64_t needed) {
    if (head_ + needed - tail_ <= capacity_) return true;
    tail_ = control_->tail.load();
    if (head_ + needed - tail_ <= capacity_) return true;
    control_->starved.store(1);
    tail_ = control_->tail.load();  // the receiver may just have made room without seeing that we starve
    return head_ + needed - tail_ <= capacity_;
  }
  void copy_in(uint64_t position, const char* from, size_t bytes) {
    const size_t at = position & (capacity_ - 1), first = std::min(bytes, static_cast<size_t>(capacity_ - at));
    std::memcpy(data_ + at, from, first);
    if (first < bytes) std::memcpy(data_, from + first, bytes - first);
  }
  ShmRingControl* control_;
  char* data_;
  uint64_t capacity_, head_ = 0, tail_ = 0;
};

class ShmRingReader {
 public:
  ShmRingReader(ShmRingControl& control, const char* data, int64_t capacity)
      : control_(&control), data_(data), capacity_(static_cast<uint64_t>(capacity)) {}
  int64_t capacity() const { return static_cast<int64_t>(capacity_); }
  // The oldest record, null if there is none. It stands until pop().
  const ShmRecord* front() {
    if (tail_ == head_) head_ = control_->head.load();
    return tail_ == head_ ? nullptr : reinterpret_cast<const ShmRecord*>(data_ + (tail_ & (capacity_ - 1)));
  }
  void payload(char* to, size_t bytes) const {
    const size_t at = (tail_ + sizeof(ShmRecord)) & (capacity_ - 1);
    const size_t first = std::min(bytes, static_cast<size_t>(capacity_ - at));
    std::memcpy(to, data_ + at, first);
    if (first < bytes) std::memcpy(to + first, data_, bytes - first);
  }
  void pop() {
    tail_ += sizeof(ShmRecord) + ShmRingWriter::padded(front()->length);
    control_->tail.store(tail_);
  }
  // True if the writer waited for room and must be told that there is some.
  bool feed() { return control_->starved.load() != 0 && control_->starved.exchange(0) != 0; }

 private:
  ShmRingControl* control_;
  const char* data_;
  uint64_t capacity_, head_ = 0, tail_ = 0;
};

}  // namespace ballast
