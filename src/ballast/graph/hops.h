#pragma once
// Writes the movements of one parameter group into a graph: gathers outer hop first, reductions inner hop first, each hop with its codec. What is
// moved is an image: some elements of the group, encoded somehow, somewhere in a buffer.
#include <span>

#include "ballast/graph/shards.h"

namespace ballast {

// The group's elements from `base` on, in `buffer`, encoded by `codec`.
struct Image {
  BufferId buffer = kNoBuffer;
  CodecSpec codec;
  int64_t base = 0;
  bool packed = false;   // of these only the writer's subset, in order
};

class HopWriter {
 public:
  // Hops count as part of `movement`; Movement::Count: of none. With a subset only its elements move; their images have room for all, so that
  // memory does not depend on which they are.
  HopWriter(const Recipe& recipe, int64_t rank, StepGraph& graph, int64_t group, Movement movement, std::shared_ptr<const Subset> subset = nullptr);

  // Widens this rank's range from its shard over `outer`, which stands in `source`, to that over the innermost hop, in `target`. Hops of one codec
  // pass one image on, so a value is encoded once however many hops it takes; in the end every rank, the sender too, has what was decoded.
  void gather(const Image& source, int outer, const Image& target, const std::vector<HopSpec>& hops);
  // The rank's shard over `level` from one image into another.
  void cut(const Image& source, const Image& target, int level);

  // Sums ranges of `source` (fp32) hop by hop, in place; the last sum goes to `result` instead unless that is kNoBuffer, added if `accumulate`.
  // Between two lossy hops a sum is encoded as it is made: as many encodings as hops, whatever the number of ranks. `feedback`: a buffer per hop.
  void reduce(const Image& source, const std::vector<HopSpec>& hops, std::span<const BufferId> feedback, BufferId result, bool accumulate,
              int32_t micro_batch);

 private:
  Op op_of(OpKind kind, std::string_view what, Lane lane) const;
  Op hop_op(const HopSpec& hop, std::string_view what) const;
  void move(const Image& from, const Image& to, const Range& range, Lane lane);
  Image new_image(const CodecSpec& codec, const Range& range, const char* name);
  BufferId add(Buffer buffer);
  void push(Op op);
  int64_t place_in(const Image& image, int64_t element) const;
  int64_t count(const Range& range) const;
  Range shard(int level) const { return place_.shard(recipe_.topology, rank_, level); }

  const Recipe& recipe_;
  int64_t rank_;
  StepGraph& graph_;
  int64_t group_;
  Movement movement_;
  std::shared_ptr<const Subset> subset_;
  GroupPlace place_;
};

}  // namespace ballast
