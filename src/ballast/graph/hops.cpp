#include "ballast/graph/hops.h"

#include <algorithm>

#include "ballast/base/check.h"

namespace ballast {

namespace {

const CodecSpec kFp32{.name = "fp32"};

}  // namespace

HopWriter::HopWriter(const Recipe& recipe, int64_t rank, StepGraph& graph, int64_t group, Movement movement, std::shared_ptr<const Subset> subset)
    : recipe_(recipe), rank_(rank), graph_(graph), group_(group), movement_(movement), subset_(std::move(subset)),
      place_(place_group(recipe, static_cast<size_t>(group))) {}

int64_t HopWriter::place_in(const Image& image, int64_t element) const {
  return image.packed ? subset_->count(image.base, element) : element - image.base;
}

int64_t HopWriter::count(const Range& range) const { return subset_ == nullptr ? range.count : subset_->count(range.begin, range.begin + range.count); }

void HopWriter::push(Op op) {
  op.group = static_cast<int32_t>(group_);
  op.subset = subset_;
  op.tag = ++graph_.hop_tags;
  graph_.ops.push_back(std::move(op));
}

Op HopWriter::op_of(OpKind kind, std::string_view what, Lane lane) const {
  Op op;
  op.kind = kind;
  op.what = what;
  op.lane = lane;
  return op;
}

// Members hold equal parts of the range that all of them have together; of a subset, what of it lies in these.
Op HopWriter::hop_op(const HopSpec& hop, std::string_view what) const {
  Op op = op_of(OpKind::Collective, what, link_lane(hop.outer));
  op.level = hop.outer;
  op.below = hop.inner;
  if (movement_ != Movement::Count) op.movement = static_cast<int32_t>(movement_);
  op.codec = hop.codec;
  const int64_t members = recipe_.topology.group_size(hop.outer) / recipe_.topology.group_size(hop.inner);
  const Range all = shard(hop.inner), mine = shard(hop.outer);
  op.element = all.begin;
  op.part = all.count / members;
  op.bytes = what == what::kGather ? (members - 1) * hop.codec.encoded_bytes(count(mine)) : hop.codec.encoded_bytes(count(all)) - hop.codec.encoded_bytes(count(mine));
  return op;
}

BufferId HopWriter::add(Buffer buffer) {
  graph_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(graph_.buffers.size() - 1);
}

Image HopWriter::new_image(const CodecSpec& codec, const Range& range, const char* name) {
  return {add(encoded_buffer(std::string(name) + "." + codec.name + "." + place_.group->name, codec, range.count)), codec, range.begin, subset_ != nullptr};
}

void HopWriter::move(const Image& from, const Image& to, const Range& range, Lane lane) {
  if (from.buffer == to.buffer) return;
  const bool same = from.codec == to.codec;
  Op op = op_of(same ? OpKind::Copy : OpKind::Codec, same ? what::kCopy : what::kTranscode, lane);
  op.codec = from.codec;
  op.into = to.codec;
  op.begin = place_in(from, range.begin);
  op.into_begin = place_in(to, range.begin);
  op.element = range.begin;
  op.part = range.count;
  op.spread_in = !from.packed;
  op.spread_out = !to.packed;
  op.inputs = {from.buffer};
  op.outputs = {to.buffer};
  push(std::move(op));
}

void HopWriter::cut(const Image& source, const Image& target, int level) {
  move(source, target, shard(level), level == kSelf ? kComputeLane : link_lane(level));
}

void HopWriter::gather(const Image& source, int outer, const Image& target, const std::vector<HopSpec>& hops) {
  Image at = source;
  Range held = shard(outer);
  for (auto hop = hops.rbegin(); hop != hops.rend();) {
    auto next = hop;
    while (next != hops.rend() && next->codec == hop->codec) ++next;
    const Range after = shard(std::prev(next)->inner);
    const Image image = hop->codec == target.codec && subset_ == nullptr ? target : new_image(hop->codec, after, "wire");
    move(at, image, held, link_lane(hop->outer));
    for (; hop != next; ++hop) {
      Op op = hop_op(*hop, what::kGather);
      op.begin = place_in(image, shard(hop->inner).begin);
      op.outputs = {image.buffer};
      push(std::move(op));
    }
    at = image;
    held = after;
  }
  move(at, target, held, hops.empty() ? kComputeLane : link_lane(hops.front().outer));
}

void HopWriter::reduce(const Image& source, const std::vector<HopSpec>& hops, std::span<const BufferId> feedback, BufferId result, bool accumulate,
                       int32_t micro_batch) {
  BALLAST_CHECK(feedback.empty() || feedback.size() == hops.size(), "{} feedback buffers for {} hops", feedback.size(), hops.size());
  BALLAST_CHECK(subset_ == nullptr || std::ranges::all_of(feedback, [](BufferId id) { return id == kNoBuffer; }), "error feedback of a part of {}", place_.group->name);
  const auto feed = [&](Op& op, size_t hop) {
    if (feedback.empty() || feedback[hop] == kNoBuffer) return;
    op.feedback = *hops[hop].feedback;
    op.first_feedback = !accumulate;   // what is added to belongs to a later micro-batch
    op.saved = {feedback[hop]};
  };
  Image at = source;  // holds the parts of the next hop, encoded as it sends them
  for (size_t h = 0; h < hops.size(); ++h) {
    const HopSpec& hop = hops[h];
    const Range range = shard(hop.inner);
    if (at.codec != hop.codec || (subset_ != nullptr && !at.packed)) {  // the first hop, or one after an fp32 sum
      const Image image = new_image(hop.codec, range, "wire");
      Op encode = op_of(OpKind::Codec, what::kTranscode, link_lane(hop.outer));
      encode.micro_batch = micro_batch;
      encode.codec = at.codec;
      encode.into = hop.codec;
      encode.begin = place_in(at, range.begin);
      encode.spread_in = !at.packed;
      encode.element = range.begin;
      encode.part = range.count;
      encode.inputs = {at.buffer};
      encode.outputs = {image.buffer};
      feed(encode, h);
      push(std::move(encode));
      at = image;
    }
    Op swap = hop_op(hop, what::kSwap);
    swap.micro_batch = micro_batch;
    swap.begin = place_in(at, range.begin);
    swap.inputs = {at.buffer};
    swap.outputs = {add(encoded_buffer("arrived." + place_.group->name, hop.codec, range.count - swap.part))};

    Op sum = hop_op(hop, what::kSum);
    sum.kind = OpKind::Codec;
    sum.bytes = 0;
    sum.micro_batch = micro_batch;
    sum.begin = swap.begin;
    sum.inputs = {at.buffer, swap.outputs[0]};
    const Range mine = shard(hop.outer);
    const bool last = h + 1 == hops.size();
    const CodecSpec next = last ? kFp32 : hops[h + 1].codec;
    Image to = source;
    if (next != kFp32) {
      to = new_image(next, mine, "wire");
      feed(sum, h + 1);
    } else if (last && result != kNoBuffer) {
      to = {result, kFp32, mine.begin};
      sum.accumulate = accumulate;
    }
    sum.into = next;
    sum.into_begin = place_in(to, mine.begin);
    sum.spread_out = !to.packed;
    sum.element = mine.begin;
    sum.outputs = {to.buffer};
    push(std::move(swap));
    push(std::move(sum));
    at = to;
  }
}

}  // namespace ballast
