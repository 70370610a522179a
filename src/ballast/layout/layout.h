#pragma once
// Which tokens of which sample are where in each phase of a step. Pure, the same on every rank.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ballast {

// A sample that a step trains: an index into the data source's order and its number of input tokens.
struct SampleRef {
  uint64_t sample;   // identity within the data set: stable across world sizes and resumes
  int64_t length;    // input tokens, >= 1
};

// A run of consecutive input tokens [begin, begin + length) of a sample.
struct Piece {
  uint64_t sample;
  int64_t begin;
  int64_t length;
  int64_t padding = 0;   // slots after it that hold nothing and train nothing (padded layouts)
};

// How ranks that share one sequence's attention bring its queries and keys together.
enum class Sharing : uint8_t {
  Ring,    // keys and values go round (arXiv 2310.01889), with teams as concentric rings (arXiv 2407.00611)
  Gather,  // every member gathers all keys and values
  Heads    // all-to-all: every member has all tokens of some heads (arXiv 2309.14509)
};
const char* name_of(Sharing sharing);

// The chunks i and 2 P - 1 - i of a sequence cut into 2 P; their `sample` is left to the caller.
std::array<Piece, 2> zigzag_chunks(int64_t length, int64_t members, int64_t member);

// A sequence whose attention several ranks share. It is cut into 2 P chunks whose lengths differ by at most one; member i holds the chunks i and
// 2 P - 1 - i (zig-zag), so that all members have equal causal work.
struct CutSequence {
  uint64_t sample = 0;
  int64_t length = 0;              // tokens; chunks of a short one may be empty
  std::vector<int64_t> ranks;      // members in ring order; a team is `team` consecutive ones
  Sharing sharing = Sharing::Ring;
  int64_t team = 1;                // C: C^2 divides the members; 1 is the plain ring
  bool keys_across = false;        // teams gather keys and values across teams instead of within (docs/sequences.md)
  bool routed = false;             // a hop of its ring between units goes over all links of a unit (layout/route.h)
  int level = 0;                   // innermost level that contains all members
  int64_t order = 0;               // its place among the cut sequences of its micro-batch, outermost level first; the same on all ranks
  int64_t members() const { return static_cast<int64_t>(ranks.size()); }
  std::array<Piece, 2> chunks(int64_t member) const;
};

// What a rank holds of a cut sequence: both chunks of `member`, one after the other, from `slot` on among its attention slots.
struct CutPart {
  std::shared_ptr<const CutSequence> cut;
  int64_t member = 0;              // -1: none, the rank only passes on what others send over its link
  int64_t slot = 0;
};

// Consecutive token slots that go to (or come from) a rank when tokens change between two layouts. The k-th run to a rank is its k-th from here;
// runs with the rank itself move within it.
struct TokenRun {
  int64_t rank = 0, slot = 0, count = 0;
  bool operator==(const TokenRun&) const = default;
};

// One micro-batch on one rank.
struct MicroBatchLayout {
  std::vector<Piece> pieces;           // token slots outside attention, in order
  // Attention, where it differs. `attended`: its token slots in order, first the chunks of cut sequences; empty: the same slots as `pieces`.
  std::vector<Piece> attended;
  std::vector<CutPart> cuts;           // by CutSequence::order
  std::vector<TokenRun> leave, arrive; // slots of `pieces` that go out to attention, slots of `attended` that they come to; empty without `attended`
  int64_t tokens() const;              // real tokens of `pieces`
  int64_t slots() const;               // with padding
  bool remapped() const { return !leave.empty() || !arrive.empty() || !attended.empty(); }
  const std::vector<Piece>& attention_pieces() const { return remapped() ? attended : pieces; }
  int64_t attention_slots() const;
  int64_t cut_slots() const;           // of these, how many stand first and belong to cut sequences
  std::span<const Piece> whole_pieces() const;   // the attention pieces behind them
};

// All ranks have the same number of micro-batches; an empty one is legal.
struct Layout {
  std::string name;                                         // of the policy: "packed", "balanced"
  std::vector<std::vector<MicroBatchLayout>> ranks;         // [rank][micro-batch]
  int64_t micro_batches() const { return ranks.empty() ? 0 : static_cast<int64_t>(ranks.front().size()); }
  int64_t tokens() const;
  int64_t slots() const;
  uint64_t fingerprint() const;
};

}  // namespace ballast
