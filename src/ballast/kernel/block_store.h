#pragma once
// Where the allocator's blocks come from: small ones from free lists per size class, large ones best-fit from mapped
// regions whose free neighbours merge. Counting, poison and limits are allocator.h's.
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace ballast {

// Blocks up to this many bytes have size classes, eight to each doubling; larger ones are multiples of a page.
constexpr int64_t kLargestSmall = 32768;
constexpr int64_t kBlockAlignment = 64;
constexpr int64_t kPage = 4096;

// Size classes: multiples of 64 up to 512, then 8 per doubling.
int small_class(int64_t bytes);
int64_t small_class_bytes(int index);
int64_t rounded_block_bytes(int64_t bytes);

// Thread-safe. Memory is never unmapped before release(), which returns pages but keeps the addresses.
class BlockStore {
 public:
  // A block of rounded_block_bytes(bytes), 64-byte aligned; null when the system has no more.
  void* take(int64_t bytes);
  void give(void* block, int64_t bytes);
  int64_t reserved() const;
  int64_t release();

 private:
  static constexpr int kClasses = 56;  // small_class(kLargestSmall) + 1
  struct SmallList {
    std::mutex mutex;
    void* head = nullptr;  // linked through the first word of each free block
    char *fresh = nullptr, *fresh_end = nullptr;
  };
  void* take_small(int index);
  void* take_large(int64_t bytes);
  void give_large(char* block, int64_t bytes);
  void insert_free(char* block, int64_t bytes);
  void erase_free(std::map<char*, int64_t>::iterator at);
  bool grow(int64_t bytes);

  std::array<SmallList, kClasses> small_;
  mutable std::mutex large_mutex_;
  std::map<char*, int64_t> free_by_address_;
  std::set<std::pair<int64_t, char*>> free_by_size_;
  int64_t reserved_ = 0;
};

}  // namespace ballast
