#include "ballast/layout/layout.h"

#include <algorithm>

namespace ballast {

int64_t MicroBatchLayout::tokens() const {
  int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.length;
  return sum;
}

int64_t MicroBatchLayout::slots() const {
  int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.length + piece.padding;
  return sum;
}

int64_t MicroBatchLayout::attention_slots() const {
  int64_t sum = 0;
  for (const Piece& piece : attention_pieces()) sum += piece.length + piece.padding;
  return sum;
}

int64_t MicroBatchLayout::cut_slots() const {
  int64_t sum = 0;
  for (const CutPart& part : cuts) {
    if (part.member < 0) continue;
    for (const Piece& chunk : part.cut->chunks(part.member)) sum += chunk.length;
  }
  return sum;
}

std::span<const Piece> MicroBatchLayout::whole_pieces() const {
  const std::span<const Piece> all(attention_pieces());
  size_t first = 0;
  for (int64_t left = cut_slots(); left > 0; ++first) left -= all[first].length + all[first].padding;
  return all.subspan(first);
}

const char* name_of(Sharing sharing) {
  switch (sharing) {
    case Sharing::Ring: return "ring";
    case Sharing::Gather: return "gather";
    case Sharing::Heads: return "heads";
  }
  return "?";
}

std::array<Piece, 2> zigzag_chunks(int64_t length, int64_t members, int64_t member) {
  const int64_t count = 2 * members;
  const auto chunk = [&](int64_t index) {
    const int64_t begin = index * length / count, end = (index + 1) * length / count;
    return Piece{0, begin, end - begin, 0};
  };
  return {chunk(member), chunk(count - 1 - member)};
}

std::array<Piece, 2> CutSequence::chunks(int64_t member) const {
  std::array<Piece, 2> result = zigzag_chunks(length, members(), member);
  for (Piece& chunk : result) chunk.sample = sample;
  return result;
}

int64_t Layout::tokens() const {
  int64_t sum = 0;
  for (const auto& rank : ranks) for (const MicroBatchLayout& batch : rank) sum += batch.tokens();
  return sum;
}

int64_t Layout::slots() const {
  int64_t sum = 0;
  for (const auto& rank : ranks) for (const MicroBatchLayout& batch : rank) sum += batch.slots();
  return sum;
}

uint64_t Layout::fingerprint() const {
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  const auto mix = [&hash](uint64_t value) {
    hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccdull;
    hash ^= hash >> 33;
  };
  for (const auto& rank : ranks) {
    mix(rank.size());
    for (const MicroBatchLayout& batch : rank) {
      mix(batch.pieces.size());
      for (const Piece& piece : batch.pieces) {
        mix(piece.sample);
        mix(static_cast<uint64_t>(piece.begin));
        mix(static_cast<uint64_t>(piece.length));
        mix(static_cast<uint64_t>(piece.padding));
      }
      mix(batch.attended.size());
      for (const Piece& piece : batch.attended) {
        mix(piece.sample);
        mix(static_cast<uint64_t>(piece.begin));
        mix(static_cast<uint64_t>(piece.length));
      }
      for (const CutPart& part : batch.cuts) {
        mix(part.cut->sample);
        mix(static_cast<uint64_t>(part.cut->length));
        for (int64_t rank : part.cut->ranks) mix(static_cast<uint64_t>(rank));
        for (int64_t value : {static_cast<int64_t>(part.cut->sharing), part.cut->team, static_cast<int64_t>(part.cut->keys_across), static_cast<int64_t>(part.cut->routed), part.cut->order, part.member, part.slot}) {
          mix(static_cast<uint64_t>(value));
        }
      }
    }
  }
  return hash;
}

}  // namespace ballast
