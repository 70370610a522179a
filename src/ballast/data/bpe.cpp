#include "ballast/data/bpe.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "ballast/base/error.h"

namespace ballast {
namespace {

constexpr uint32_t kNoRank = ~uint32_t{0};
// Up to here scanning all pairs for the lowest rank is faster than a heap.
constexpr size_t kShort = 40;

}  // namespace

BpeModel::BpeModel(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges, WholeWords whole_words, int32_t unknown)
    : byte_ids_(byte_ids), whole_words_(std::move(whole_words)), unknown_(unknown) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, merges.size() * 2 + 1));
  table_.assign(size, Entry{kEmpty, 0, 0});
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (const Merge& merge : merges) {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(merge.left)) << 32 | static_cast<uint32_t>(merge.right);
    size_t at = (pair * 0x9E3779B97F4A7C15u) >> shift_;
    while (table_[at].pair != kEmpty && table_[at].pair != pair) at = (at + 1) & mask_;
    table_[at] = {pair, static_cast<uint32_t>(merge.rank), merge.result};
  }
}

void BpeModel::append(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (word.size() > BpeScratch::kWordBytes) {
    encode(word, scratch);
    ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
    return;
  }
  BpeScratch::Slot& slot = scratch.slots[XXH3_64bits(word.data(), word.size()) & (BpeScratch::kSlots - 1)];
  if (slot.bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) {
    encode(word, scratch);
    if (scratch.ids.size() > BpeScratch::kWordIds) {
      ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
      return;
    }
    slot.bytes = static_cast<uint8_t>(word.size());
    slot.ids = static_cast<uint8_t>(scratch.ids.size());
    std::memcpy(slot.word, word.data(), word.size());
    std::copy(scratch.ids.begin(), scratch.ids.end(), slot.id);
  }
  if (slot.ids == 1) {
    ids.push_back(slot.id[0]);
  } else {
    ids.insert(ids.end(), slot.id, slot.id + slot.ids);
  }
}

// Leaves the ids in scratch.ids.
void BpeModel::encode(std::string_view word, BpeScratch& scratch) const {
  if (word.size() > INT32_MAX) {
    throw Error(ErrorKind::Data, "a word is too long to be tokenized").found(fmt::format("{} bytes", word.size())).expected("less than 2 GiB");
  }
  scratch.ids.clear();
  if (!whole_words_.empty()) {
    if (const auto found = whole_words_.find(word); found != whole_words_.end()) {
      scratch.ids.push_back(found->second);
      return;
    }
  }
  for (const char c : word) {
    int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id == kNone) id = unknown_;
    if (id == kNone) {
      throw Error(ErrorKind::Data, fmt::format("the tokenizer has no token for byte 0x{:02x}", static_cast<unsigned char>(c)))
          .found(printable(std::string(word.substr(0, 64))))
          .cure("use a tokenizer whose vocabulary holds all 256 bytes");
    }
    scratch.ids.push_back(id);
  }
  if (word.size() <= kShort) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

void BpeModel::merge_short(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  int32_t result[kShort];      // of the pair (i, i + 1)
  uint32_t rank[kShort];
  size_t count = ids.size();
  const auto look = [&](size_t i) {
    const Entry* entry = i + 1 < count ? find(ids[i], ids[i + 1]) : nullptr;
    rank[i] = entry ? entry->rank : kNoRank;
    result[i] = entry ? entry->result : kNone;
  };
  for (size_t i = 0; i < count; ++i) look(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (rank[i] < rank[best]) best = i;
    }
    if (rank[best] == kNoRank) break;
    ids[best] = result[best];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      rank[i] = rank[i + 1];
      result[i] = result[i + 1];
    }
    look(best);
    if (best > 0) look(best - 1);
  }
  ids.resize(count);
}

void BpeModel::merge_long(BpeScratch& scratch) const {
  std::vector<BpeScratch::Node>& nodes = scratch.nodes;
  std::vector<uint64_t>& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  nodes.resize(static_cast<size_t>(count));
  heap.clear();
  const auto node = [&](int32_t i) -> BpeScratch::Node& { return nodes[static_cast<size_t>(i)]; };
  const auto look = [&](int32_t i) {
    BpeScratch::Node& here = node(i);
    const Entry* entry = here.next < count ? find(here.id, node(here.next).id) : nullptr;
    here.rank = entry ? entry->rank : kNoRank;
    return entry != nullptr;
  };
  const auto key = [&](int32_t i) { return static_cast<uint64_t>(node(i).rank) << 32 | static_cast<uint32_t>(i); };
  for (int32_t i = 0; i < count; ++i) node(i) = {scratch.ids[static_cast<size_t>(i)], i - 1, i + 1, kNoRank};
  for (int32_t i = 0; i < count; ++i) {
    if (look(i)) heap.push_back(key(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](int32_t i) {
    if (!look(i)) return;
    heap.push_back(key(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t lowest = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(lowest & 0xFFFFFFFFu);
    // A pair that has changed since it was pushed has another rank now, or none: then a newer entry stands for it.
    if (node(at).id == kNone || node(at).rank != static_cast<uint32_t>(lowest >> 32)) continue;
    const int32_t gone = node(at).next;
    node(at).id = find(node(at).id, node(gone).id)->result;
    node(at).next = node(gone).next;
    if (node(gone).next < count) node(node(gone).next).previous = at;
    node(gone).id = kNone;
    push(at);
    if (node(at).previous >= 0) push(node(at).previous);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i < count; i = node(i).next) scratch.ids.push_back(node(i).id);
}

}  // namespace ballast
