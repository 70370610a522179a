// The c10::Allocator over BlockStore: a 64-byte header in front of each block, counters, limit, poison.
#include "ballast/kernel/allocator.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/kernel/block_store.h"

namespace ballast {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaching = false;  // AddressSanitizer sees a use after free only if memory is really freed
#else
constexpr bool kCaching = true;
#endif
#if defined(BALLAST_POISON)
constexpr bool kFill = true;
#else
constexpr bool kFill = false;
#endif

struct alignas(kBlockAlignment) Header {
  uint64_t magic;
  int64_t requested;
};
static_assert(sizeof(Header) == kBlockAlignment);
constexpr uint64_t kLive = 0xb10cb10c11ffe5ULL, kFree = 0xdeadb10cdeadb10cULL;

struct State {
  BlockStore store;
  std::atomic<int64_t> current{0}, peak{0}, limit{0};
  std::atomic<bool> installed{false};
};

// Never destroyed: tensors of static lifetime are freed after every destructor here.
State& state() {
  static State* const s = new State;
  return *s;
}

void fill_poison(void* data, int64_t bytes) {
  char* out = static_cast<char*>(data);
  int64_t i = 0;
  for (; i + 4 <= bytes; i += 4) std::memcpy(out + i, &kPoison, 4);
  std::memcpy(out + i, &kPoison, static_cast<size_t>(bytes - i));
}

[[noreturn]] void out_of_memory(int64_t requested, const std::string& reason) {
  throw Error(ErrorKind::OutOfMemory, fmt::format("allocating {} bytes failed", requested))
      .found(fmt::format("{} bytes in use, {} at the peak; {}", current_bytes(), peak_bytes(), reason))
      .cure(
          "smaller batch.micro_tokens, train.recompute, or a placement that shards more ('ballast plan' shows the "
          "parts)");
}

void* allocate_block(int64_t bytes) {
  if constexpr (kCaching) return state().store.take(bytes);
  return std::aligned_alloc(kBlockAlignment,
                            static_cast<size_t>((bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment));
}

void free_block(void* block, int64_t bytes) {
  if constexpr (kCaching) {
    state().store.give(block, bytes);
  } else {
    std::free(block);
  }
}

void release_data(void* data) {
  if (data == nullptr) return;
  Header* header = reinterpret_cast<Header*>(static_cast<char*>(data) - sizeof(Header));
  BALLAST_CHECK(header->magic == kLive, "freed twice, not from this allocator, or written before its start: {:#x}",
                header->magic);
  const int64_t requested = header->requested;
  header->magic = kFree;
  if constexpr (kFill) fill_poison(data, requested);
  free_block(header, requested + static_cast<int64_t>(sizeof(Header)));
  state().current.fetch_sub(requested, std::memory_order_relaxed);
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (n == 0) return {nullptr, nullptr, &release_data, cpu};
    State& s = state();
    if (n > static_cast<size_t>(std::numeric_limits<int64_t>::max() / 2))
      out_of_memory(std::numeric_limits<int64_t>::max() / 2, "the request is beyond any machine");
    const int64_t requested = static_cast<int64_t>(n);
    const int64_t now = s.current.fetch_add(requested, std::memory_order_relaxed) + requested;
    const int64_t limit = s.limit.load(std::memory_order_relaxed);
    if (limit > 0 && now > limit) {
      s.current.fetch_sub(requested, std::memory_order_relaxed);
      out_of_memory(requested, fmt::format("the limit is {} bytes", limit));
    }
    void* block = allocate_block(requested + static_cast<int64_t>(sizeof(Header)));
    if (block == nullptr) {
      s.current.fetch_sub(requested, std::memory_order_relaxed);
      out_of_memory(requested, "the system gave no more memory");
    }
    for (int64_t peak = s.peak.load(std::memory_order_relaxed);
         peak < now && !s.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {
    }
    new (block) Header{kLive, requested};
    void* data = static_cast<char*>(block) + sizeof(Header);
    if constexpr (kFill) fill_poison(data, requested);
    return {data, data, &release_data, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_data; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};

}  // namespace

void install_allocator() {
  static CachingAllocator* const allocator = new CachingAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/100);
  BALLAST_CHECK(c10::GetCPUAllocator() == allocator, "another CPU allocator has a higher priority");
  state().installed = true;
}

bool allocator_installed() { return state().installed; }
int64_t current_bytes() { return state().current.load(std::memory_order_relaxed); }
int64_t peak_bytes() { return state().peak.load(std::memory_order_relaxed); }
void reset_peak() { state().peak.store(current_bytes(), std::memory_order_relaxed); }
int64_t reserved_bytes() { return kCaching ? state().store.reserved() : current_bytes(); }
int64_t release_cached() { return kCaching ? state().store.release() : 0; }
void set_allocation_limit(int64_t bytes) { state().limit.store(bytes, std::memory_order_relaxed); }
int64_t block_bytes(int64_t requested) {
  return requested == 0 ? 0 : rounded_block_bytes(requested + static_cast<int64_t>(sizeof(Header)));
}

}  // namespace ballast
