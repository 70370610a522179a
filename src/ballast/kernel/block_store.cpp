// Size classes, the best-fit store and the mapping of regions.
#include "ballast/kernel/block_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

namespace ballast {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSmallChunk = int64_t{256} << 10;  // what a size class takes from the regions at a time
constexpr int64_t kSmallestRegion = int64_t{64} << 20, kLargestRegion = int64_t{4} << 30;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int small_class(int64_t bytes) {
  if (bytes <= 512) return static_cast<int>(std::max<int64_t>(0, (bytes - 1) / 64));
  const int doubling = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 10;  // 0 for (512, 1024]
  const int64_t step = int64_t{64} << doubling;
  const int64_t low = int64_t{512} << doubling;
  return 8 + 8 * doubling + static_cast<int>((bytes - low - 1) / step);
}

int64_t small_class_bytes(int index) {
  if (index < 8) return 64 * (index + 1);
  const int doubling = index / 8 - 1;
  return (int64_t{64} << doubling) * (index % 8 + 9);
}

int64_t rounded_block_bytes(int64_t bytes) {
  return bytes <= kLargestSmall ? small_class_bytes(small_class(bytes)) : round_up(bytes, kPage);
}

void* BlockStore::take(int64_t bytes) {
  return bytes <= kLargestSmall ? take_small(small_class(bytes)) : take_large(round_up(bytes, kPage));
}

void BlockStore::give(void* block, int64_t bytes) {
  if (bytes > kLargestSmall) {
    const std::lock_guard lock(large_mutex_);
    give_large(static_cast<char*>(block), round_up(bytes, kPage));
    return;
  }
  SmallList& list = small_[small_class(bytes)];
  const std::lock_guard lock(list.mutex);
  std::memcpy(block, &list.head, sizeof list.head);
  list.head = block;
}

void* BlockStore::take_small(int index) {
  SmallList& list = small_[index];
  const int64_t size = small_class_bytes(index);
  const std::lock_guard lock(list.mutex);
  if (list.head != nullptr) {
    void* block = list.head;
    std::memcpy(&list.head, block, sizeof list.head);
    return block;
  }
  if (list.fresh_end - list.fresh < size) {
    const int64_t chunk = size <= 1024 ? kSmallChunk / 4 : kSmallChunk;
    char* more = static_cast<char*>(take_large(chunk));
    if (more == nullptr) return nullptr;
    list.fresh = more;
    list.fresh_end = more + chunk;
  }
  void* block = list.fresh;
  list.fresh += size;
  return block;
}

void* BlockStore::take_large(int64_t bytes) {
  const std::lock_guard lock(large_mutex_);
  auto found = free_by_size_.lower_bound({bytes, nullptr});
  if (found == free_by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    found = free_by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, block] = *found;
  erase_free(free_by_address_.find(block));
  if (size > bytes) insert_free(block + bytes, size - bytes);
  return block;
}

void BlockStore::give_large(char* block, int64_t bytes) {
  const auto next = free_by_address_.lower_bound(block);
  if (next != free_by_address_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == block) {
      block = before->first;
      bytes += before->second;
      erase_free(before);
    }
  }
  if (next != free_by_address_.end() && block + bytes == next->first) {
    bytes += next->second;
    erase_free(next);
  }
  insert_free(block, bytes);
}

void BlockStore::insert_free(char* block, int64_t bytes) {
  free_by_address_.emplace(block, bytes);
  free_by_size_.emplace(bytes, block);
}

void BlockStore::erase_free(std::map<char*, int64_t>::iterator at) {
  free_by_size_.erase({at->second, at->first});
  free_by_address_.erase(at);
}

// Maps a region of address space; pages come with the first touch. Regions grow with what is in use, so there are few.
bool BlockStore::grow(int64_t bytes) {
  const int64_t wanted = std::clamp(reserved_ / 2, kSmallestRegion, kLargestRegion);
  for (const int64_t usable :
       {std::max(round_up(bytes, kHugePage), round_up(wanted, kHugePage)), round_up(bytes, kHugePage)}) {
    const int64_t mapped = usable + kHugePage;  // room to begin at a multiple of a huge page
    void* region = ::mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) continue;
    char* begin = static_cast<char*>(region);
    const int64_t skip = (kHugePage - static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kHugePage)) % kHugePage;
    if (skip > 0) ::munmap(begin, static_cast<size_t>(skip));
    begin += skip;
    if (mapped - skip > usable) ::munmap(begin + usable, static_cast<size_t>(mapped - skip - usable));
    ::madvise(begin, static_cast<size_t>(usable),
              MADV_HUGEPAGE);  // a kernel without huge pages refuses: then small ones serve
    reserved_ += usable;
    give_large(begin, usable);
    return true;
  }
  return false;
}

int64_t BlockStore::reserved() const {
  const std::lock_guard lock(large_mutex_);
  return reserved_;
}

int64_t BlockStore::release() {
  const std::lock_guard lock(large_mutex_);
  int64_t released = 0;
  for (const auto& [block, bytes] : free_by_address_) {
    if (::madvise(block, static_cast<size_t>(bytes), MADV_DONTNEED) == 0) released += bytes;
  }
  return released;
}

}  // namespace ballast
