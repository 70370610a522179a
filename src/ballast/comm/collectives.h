#pragma once
// The collectives of the plan, built from exchanges over a list of members: exact bytes, a fixed order of sums, any back end.
// A buffer of members.size() parts; part j belongs to member j. All are called by every member with the same arguments.
#include <span>

#include "ballast/codec/codec.h"
#include "ballast/comm/communicator.h"

namespace ballast {

struct Hop {
  std::span<const int64_t> members;  // world ranks, in coordinate order
  int64_t index;                     // which of them this rank is
  uint64_t tag;
  Purpose purpose;
};

// all-gather in place: `buffer` holds members * part_bytes; this rank's part is filled already. Each member sends its part to every other:
// (n - 1) * part_bytes sent per member.
void gather(Communicator& communicator, const Hop& hop, void* buffer, int64_t part_bytes);
// The same with parts of any sizes: part j is bytes [bounds[j], bounds[j + 1]) of the buffer.
void gather(Communicator& communicator, const Hop& hop, void* buffer, std::span<const int64_t> bounds);

// all-to-all: `parts` holds one part for each member; part j goes to member j and this rank's own stays. `arrived` gets the parts that the others
// sent to this rank, that of member j in slot swap_slot(j, index, members). Each member sends (n - 1) * part_bytes.
void swap(Communicator& communicator, const Hop& hop, const void* parts, int64_t part_bytes, void* arrived);
// The same with parts of any sizes; what arrives are copies of this rank's own, so the slots are as large as that.
void swap(Communicator& communicator, const Hop& hop, const void* parts, std::span<const int64_t> bounds, void* arrived);
// Members in the order of distance before `index`: its predecessor first.
int64_t swap_slot(int64_t member, int64_t index, int64_t members);

// reduce-scatter: `source` holds n * part elements (fp32); result (part elements, fp32) = sum over members in member order 0..n-1 of
// decode(encode(part of that member)), this rank's own part included; written to `result` (may alias this rank's part of source), or, if
// `accumulate`, the finished sum is added to it. Each member sends (n - 1) * codec.encoded_bytes(part).
// `wire` is scratch of reduce_wire_bytes(codec, n, part) bytes.
void reduce_scatter(Communicator& communicator, const Hop& hop, const Codec& codec, const float* source, int64_t part, float* result, bool accumulate,
                    void* wire);
int64_t reduce_wire_bytes(const Codec& codec, int64_t members, int64_t part);

// Element-wise sum over all ranks, exact (wraps at 64 bits); control plane: not counted, one round, same order of calls on every rank.
std::vector<int64_t> all_sum(Communicator& communicator, std::span<const int64_t> mine, const std::string& what);

}  // namespace ballast
