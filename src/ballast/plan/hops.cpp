#include "ballast/plan/hops.h"

#include <fmt/format.h>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

HopWriter::HopWriter(const Recipe& recipe, int64_t rank, StepGraph& graph, int64_t group)
    : recipe_(recipe), rank_(rank), graph_(graph), group_(group), place_(place_group(recipe, static_cast<size_t>(group))) {}

void HopWriter::push(Op op) {
  op.group = static_cast<int32_t>(group_);
  if (op.kind == OpKind::Collective) op.tag = graph_.ops.size() + 1;
  graph_.ops.push_back(std::move(op));
}

Op HopWriter::hop(int level, int64_t base) const {
  const Range range = place_.shard(recipe_.topology, rank_, level - 1);
  Op op;
  op.kind = OpKind::Collective;
  op.lane = link_lane(level);
  op.level = level;
  op.begin = range.begin - base;
  op.part = range.count / recipe_.topology.level(level).size;
  return op;
}

BufferId HopWriter::wire(const CodecSpec& codec, int64_t bytes) {
  Buffer buffer;
  buffer.name = "wire." + codec.name + "." + place_.group->name;
  buffer.dtype = DType::UInt8;
  buffer.shape = {bytes};
  graph_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(graph_.buffers.size() - 1);
}

void HopWriter::take_shard(const GroupPlace& place, int level, BufferId from, BufferId to) {
  const Range range = place.shard(recipe_.topology, rank_, level);
  Op op;
  op.kind = OpKind::Copy;
  op.what = what::kTakeShard;
  op.lane = level == kSelf ? kComputeLane : link_lane(level);
  op.begin = range.begin;
  op.part = range.count;
  op.inputs = {from};
  op.outputs = {to};
  push(std::move(op));
}

void HopWriter::gather_hop(int level, BufferId buffer, DType dtype, int64_t base, const CodecSpec& codec) {
  const int64_t members = recipe_.topology.level(level).size;
  if (members == 1) return;
  Op op = hop(level, base);
  op.codec = codec;
  op.outputs = {buffer};
  const CodecSpec plain{dtype == DType::Float32 ? "fp32" : "bf16", 1};
  if (codec == plain) {
    op.what = what::kGather;
  } else {
    if (dtype != DType::Float32) {
      throw Error(ErrorKind::Usage, fmt::format("a gather of {} weights cannot be encoded as {} yet", ballast::name_of(dtype), codec.name))
          .at("placement", "wire")
          .cure("use native, or train.precision: fp32");
    }
    op.what = what::kGatherEncoded;
    op.saved = {wire(codec, members * codec.encoded_bytes(op.part))};
  }
  op.bytes = (members - 1) * codec.encoded_bytes(op.part);
  push(std::move(op));
}

void HopWriter::gather(const PlacementRow& row, Movement movement, int outer, int inner, BufferId buffer, DType dtype, int64_t base) {
  const int outermost = movement == Movement::Refresh ? row.optimizer.level : row.weights.level;
  for (int level = outer; level > inner; --level) {
    gather_hop(level, buffer, dtype, base, row.codec_of(movement, level, outermost, recipe_.native()));
  }
}

void HopWriter::gather_plain(int outer, int inner, BufferId buffer, DType dtype, int64_t base) {
  for (int level = outer; level > inner; --level) gather_hop(level, buffer, dtype, base, CodecSpec{dtype == DType::Float32 ? "fp32" : "bf16", 1});
}

void HopWriter::reduce(const PlacementRow& row, Movement movement, int inner, int outer, BufferId source, int64_t base, BufferId result, bool accumulate,
                       int32_t micro_batch) {
  const int outermost = movement == Movement::Reduce ? row.gradients.level : recipe_.topology.outermost();
  int last = outer;
  while (last > inner && recipe_.topology.level(last).size == 1) --last;
  for (int level = inner + 1; level <= last; ++level) {
    const int64_t members = recipe_.topology.level(level).size;
    if (members == 1) continue;
    const bool in_place = level != last || result == kNoBuffer;
    Op op = hop(level, base);
    op.what = what::kReduce;
    op.micro_batch = micro_batch;
    op.codec = row.codec_of(movement, level, outermost, recipe_.native());
    op.bytes = (members - 1) * op.codec.encoded_bytes(op.part);
    op.inputs = {source};
    op.outputs = {in_place ? source : result};
    op.accumulate = !in_place && accumulate;
    op.saved = {wire(op.codec, reduce_wire_bytes(op.codec, members, op.part))};
    push(std::move(op));
  }
}

void HopWriter::gather_sums(const PlacementRow& row, int outer, int inner, BufferId buffer, int64_t base) {
  for (int level = outer; level > inner; --level) {
    gather_hop(level, buffer, DType::Float32, base, row.codec_of(Movement::ReduceOn, level, recipe_.topology.outermost(), recipe_.native()));
  }
}

}  // namespace ballast
