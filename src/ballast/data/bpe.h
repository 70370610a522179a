#pragma once
// Byte-pair merges of one word: the pair of lowest rank first, the leftmost among equals, until none is left (arXiv 1508.07909).
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ballast {

struct Merge {
  int32_t left, right;   // ids
  int32_t rank;
  int32_t result;        // id of left + right
  bool operator==(const Merge&) const = default;
};

// What one thread needs to encode words, with a memory of those it met: short words fill one cache line each.
struct BpeScratch {
  static constexpr size_t kWordBytes = 22, kWordIds = 10, kSlots = 1 << 14;
  struct alignas(64) Slot {
    uint8_t bytes = 0, ids = 0;   // bytes 0: empty
    char word[kWordBytes];
    int32_t id[kWordIds];
  };
  std::vector<Slot> slots{kSlots};
  struct Node {
    int32_t id, previous, next;
    uint32_t rank;                // of the pair (this, next)
  };
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;     // rank << 32 | position
  std::vector<int32_t> ids;
};

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using WholeWords = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

class BpeModel {
 public:
  static constexpr int32_t kNone = -1;

  BpeModel() = default;
  // byte_ids: the id of each byte, kNone where the vocabulary lacks it; `unknown` then stands for it, or Error(Data) if that is kNone
  // too. whole_words: words that are their own token before any merge. Of two merges of one pair the later counts.
  BpeModel(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges, WholeWords whole_words, int32_t unknown);

  // Appends the ids of a word that is not empty.
  void append(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Entry {
    uint64_t pair;
    uint32_t rank;
    int32_t result;
  };
  const Entry* find(int32_t left, int32_t right) const {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    for (size_t at = (pair * 0x9E3779B97F4A7C15u) >> shift_;; at = (at + 1) & mask_) {
      if (table_[at].pair == pair) return &table_[at];
      if (table_[at].pair == kEmpty) return nullptr;
    }
  }
  void encode(std::string_view word, BpeScratch& scratch) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  static constexpr uint64_t kEmpty = ~uint64_t{0};
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Entry> table_;   // open addressing, at most half full
  size_t mask_ = 0;
  int shift_ = 0;
  WholeWords whole_words_;
  int32_t unknown_ = kNone;
};

}  // namespace ballast
