#pragma once
// Runs walked in stretches that stay in the first cache, where one side comes in blocks of one size and the other goes
// out in blocks of another.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

namespace ballast {

constexpr int64_t kStretch = 4096;  // elements: 16 KiB of fp32

constexpr int64_t whole_blocks(int64_t at_least, int64_t block) { return (at_least + block - 1) / block * block; }

// produce(first, count, values) fills in elements [first, first + count), whole blocks of `in_block` except the last;
// consume(first, count, values) takes them in whole blocks of `out_block` except the last, and may change `values`.
template <class Produce, class Consume>
void for_stretches(int64_t elements, int64_t in_block, int64_t out_block, Produce produce, Consume consume) {
  const int64_t stretch = whole_blocks(std::min(elements, kStretch), in_block);
  const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(stretch + out_block));
  int64_t produced = 0, consumed = 0;
  while (consumed < elements) {
    // Never more than out_block - 1 are left over, or the producer has ended.
    if (const int64_t count = std::min(stretch, elements - produced); count > 0) {
      produce(produced, count, values.get() + (produced - consumed));
      produced += count;
    }
    const int64_t held = produced - consumed;
    const int64_t count = produced == elements ? held : held / out_block * out_block;
    if (count == 0) continue;
    consume(consumed, count, values.get());
    consumed += count;
    if (count < held) std::memmove(values.get(), values.get() + count, static_cast<size_t>(held - count) * 4);
  }
}

}  // namespace ballast
