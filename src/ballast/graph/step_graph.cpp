#include "ballast/graph/step_graph.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ballast/base/check.h"

namespace ballast {

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::Compute: return "compute";
    case OpKind::Collective: return "collective";
    case OpKind::Exchange: return "exchange";
    case OpKind::Copy: return "copy";
    case OpKind::Codec: return "codec";
    case OpKind::Update: return "update";
    case OpKind::Host: return "host";
  }
  return "?";
}

const char* name_of(StateKind state) {
  switch (state) {
    case StateKind::Weights: return "weights";
    case StateKind::Secondary: return "secondary";
    case StateKind::Gradients: return "gradients";
    case StateKind::Optimizer: return "optimizer";
    case StateKind::Activations: return "activations";
    case StateKind::Buffers: return "buffers";
    case StateKind::Count: break;
  }
  return "?";
}

int64_t Buffer::numel() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

int64_t Buffer::bytes() const { return alias_of != kNoBuffer ? 0 : numel() * size_of(dtype); }

int64_t sent_bytes(const StepGraph& graph, const Op& op, const Transfer& send) {
  int64_t row_bytes = 0;
  for (int64_t i = send.set * op.parts; i < (send.set + 1) * op.parts; ++i) {
    const Buffer& buffer = graph.buffers[static_cast<size_t>(op.inputs[static_cast<size_t>(i)])];
    row_bytes += buffer.shape.back() * size_of(buffer.dtype);
  }
  return send.rows * row_bytes;
}

uint64_t StepGraph::fingerprint() const {
  uint64_t hash = 1469598103934665603ull;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  for (const Op& op : ops) {
    // What a rank attends, exchanges and sums is its own; what runs on all of them together is the same.
    if (op.kind != OpKind::Collective && op.kind != OpKind::Update && op.kind != OpKind::Host) continue;
    mix(static_cast<uint64_t>(op.kind));
    for (char c : op.what) mix(static_cast<unsigned char>(c));
    mix(op.tag);
    mix(static_cast<uint64_t>(op.level + 2));
    mix(static_cast<uint64_t>(op.group + 2));
    mix(static_cast<uint64_t>(op.segment + 2));
    mix(static_cast<uint64_t>(op.micro_batch + 2));
    mix(static_cast<uint64_t>(op.below + 2));
    if (op.kind == OpKind::Collective) mix(static_cast<uint64_t>(op.part));
    if (op.subset != nullptr) mix(op.subset->fingerprint());
  }
  return hash;
}

namespace {

// Calls visit(buffer, reads, writes) for each buffer that the op touches. Gradients and accumulated outputs are read and written;
// fresh gradients are written.
template <class Visit>
void for_each_use(const Op& op, Visit&& visit) {
  for (BufferId b : op.inputs) visit(b, true, false);
  for (BufferId b : op.weights) visit(b, true, false);
  for (size_t i = 0; i < op.gradients.size(); ++i) visit(op.gradients[i], (op.fresh >> i & 1u) == 0, true);
  const bool fresh = op.what == what::kForward || op.what == what::kRecompute || op.what == what::kSwap || op.what == what::kAttendDelta || op.what == what::kExchange;
  for (BufferId b : op.outputs) visit(b, !fresh, true);
  // What a forward saves is written; what a backward saved is read; an error-feedback buffer is both.
  const bool saved_is_output = op.what == what::kForward || op.what == what::kRecompute;
  for (BufferId b : op.saved) visit(b, !saved_is_output, saved_is_output || op.kind == OpKind::Codec);
}

BufferId root_of(const StepGraph& graph, BufferId id) {
  const Buffer& buffer = graph.buffers[static_cast<size_t>(id)];
  return buffer.alias_of == kNoBuffer ? id : buffer.alias_of;
}

void add_after(Op& op, int32_t self, int32_t earlier, const StepGraph& graph) {
  if (earlier < 0 || earlier == self || graph.ops[static_cast<size_t>(earlier)].lane == op.lane) return;
  if (std::find(op.after.begin(), op.after.end(), earlier) == op.after.end()) op.after.push_back(earlier);
}

constexpr int64_t kArenaAlignment = 256;

// Free places of one arena: who used a place last (per lane) is remembered so that the next user can wait for them.
class Arena {
 public:
  struct Place {
    int64_t end;
    std::vector<int32_t> last_users;
  };
  // Takes `bytes`; appends the former users of the place to `users`.
  int64_t take(int64_t bytes, std::vector<int32_t>& users) {
    // First fit among runs of adjacent free places.
    auto first = free_.begin();
    while (first != free_.end()) {
      auto last = first;
      while (last->second.end - first->first < bytes) {
        auto next = std::next(last);
        if (next == free_.end() || next->first != last->second.end) break;
        last = next;
      }
      if (last->second.end - first->first >= bytes) break;
      first = std::next(last);
    }
    int64_t begin = first == free_.end() ? size_ : first->first;
    if (first == free_.end() && !free_.empty()) {  // grow the last free run if it touches the end
      auto last = std::prev(free_.end());
      if (last->second.end == size_) {
        begin = last->first;
        while (last != free_.begin() && std::prev(last)->second.end == last->first) begin = (--last)->first;
      }
    }
    const int64_t end = begin + bytes;
    for (auto place = free_.lower_bound(begin); place != free_.end() && place->first < end;) {
      users.insert(users.end(), place->second.last_users.begin(), place->second.last_users.end());
      if (place->second.end > end) free_[end] = place->second;
      place = free_.erase(place);
    }
    size_ = std::max(size_, end);
    return begin;
  }
  void give(int64_t begin, int64_t end, std::vector<int32_t> last_users) { free_[begin] = Place{end, std::move(last_users)}; }
  int64_t size() const { return size_; }

 private:
  std::map<int64_t, Place> free_;
  int64_t size_ = 0;
};

}  // namespace

void add_data_dependencies(StepGraph& graph) {
  struct Uses {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since the last write, at most one per lane: the latest
  };
  std::vector<Uses> uses(graph.buffers.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    Op& op = graph.ops[i];
    const auto self = static_cast<int32_t>(i);
    for_each_use(op, [&](BufferId id, bool, bool writes) {
      const Uses& use = uses[static_cast<size_t>(root_of(graph, id))];
      add_after(op, self, use.writer, graph);
      if (writes) for (int32_t reader : use.readers) add_after(op, self, reader, graph);
    });
    for_each_use(op, [&](BufferId id, bool, bool writes) {
      Uses& use = uses[static_cast<size_t>(root_of(graph, id))];
      if (writes) {
        use.writer = self;
        use.readers.clear();
      } else {
        std::erase_if(use.readers, [&](int32_t reader) { return graph.ops[static_cast<size_t>(reader)].lane == op.lane; });
        use.readers.push_back(self);
      }
    });
  }
}

void plan_arena(StepGraph& graph, bool apart) {
  const size_t count = graph.buffers.size();
  std::vector<int32_t> first(count, -1), last(count, -1);
  std::vector<std::vector<int32_t>> users(count);  // the last op of each lane that touches the buffer
  std::vector<Lane> outermost(count, kComputeLane);   // of the lanes that do; the compute lane's, where it does
  std::vector<bool> computed(count, false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for_each_use(graph.ops[i], [&](BufferId id, bool, bool) {
      const auto b = static_cast<size_t>(id);
      if (graph.buffers[b].persistent) return;
      if (first[b] < 0) first[b] = static_cast<int32_t>(i);
      last[b] = static_cast<int32_t>(i);
      std::erase_if(users[b], [&](int32_t user) { return graph.ops[static_cast<size_t>(user)].lane == graph.ops[i].lane; });
      users[b].push_back(static_cast<int32_t>(i));
      outermost[b] = std::max(outermost[b], graph.ops[i].lane);
      computed[b] = computed[b] || graph.ops[i].lane == kComputeLane;
    });
  }
  std::vector<std::vector<BufferId>> starting(graph.ops.size()), ending(graph.ops.size());
  for (size_t b = 0; b < count; ++b) {
    if (first[b] < 0) continue;
    starting[static_cast<size_t>(first[b])].push_back(static_cast<BufferId>(b));
    ending[static_cast<size_t>(last[b])].push_back(static_cast<BufferId>(b));
  }
  Arena activations;
  std::vector<Arena> buffers(apart ? static_cast<size_t>(graph.lanes) : 1);   // by lane
  const auto lane_of = [&](BufferId id) { return apart && !computed[static_cast<size_t>(id)] ? static_cast<size_t>(outermost[static_cast<size_t>(id)]) : 0; };
  const auto aligned = [](int64_t bytes) { return std::max<int64_t>(kArenaAlignment, (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment); };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (BufferId id : starting[i]) {
      Buffer& buffer = graph.buffers[static_cast<size_t>(id)];
      Arena& arena = buffer.state == StateKind::Activations ? activations : buffers[lane_of(id)];
      std::vector<int32_t> former;
      buffer.arena_offset = arena.take(aligned(buffer.bytes()), former);
      for (int32_t user : former) add_after(graph.ops[i], static_cast<int32_t>(i), user, graph);
    }
    for (BufferId id : ending[i]) {
      Buffer& buffer = graph.buffers[static_cast<size_t>(id)];
      Arena& arena = buffer.state == StateKind::Activations ? activations : buffers[lane_of(id)];
      arena.give(buffer.arena_offset, buffer.arena_offset + aligned(buffer.bytes()), users[static_cast<size_t>(id)]);
    }
  }
  graph.activation_bytes = activations.size();
  graph.buffer_bytes = 0;
  std::vector<int64_t> begin;   // one lane's behind the other's
  for (const Arena& arena : buffers) {
    begin.push_back(graph.buffer_bytes);
    graph.buffer_bytes += arena.size();
  }
  for (size_t b = 0; b < count; ++b) {
    Buffer& buffer = graph.buffers[b];
    if (first[b] >= 0 && buffer.state != StateKind::Activations) buffer.arena_offset += begin[lane_of(static_cast<BufferId>(b))];
  }
}

void check_graph(const StepGraph& graph) {
  std::vector<bool> written(graph.buffers.size(), false);
  // Secondary weights are of the step: a graph that reads them has cut them before, so none is ever stale.
  for (int32_t b = 0; b < graph.persistent; ++b) written[static_cast<size_t>(b)] = graph.buffers[static_cast<size_t>(b)].state != StateKind::Secondary;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    BALLAST_CHECK(op.lane >= 0 && op.lane < graph.lanes, "op {} {} on lane {} of {}", i, op.what, op.lane, graph.lanes);
    for (int32_t earlier : op.after) BALLAST_CHECK(earlier >= 0 && earlier < static_cast<int32_t>(i), "op {} {} waits for op {}", i, op.what, earlier);
    for_each_use(op, [&](BufferId id, bool reads, bool writes) {
      BALLAST_CHECK(id >= 0 && id < static_cast<BufferId>(graph.buffers.size()), "op {} {} names buffer {}", i, op.what, id);
      const Buffer& buffer = graph.buffers[static_cast<size_t>(id)];
      BALLAST_CHECK(!reads || writes || written[static_cast<size_t>(id)], "op {} {} reads '{}' before it is written", i, op.what, buffer.name);
    });
    for_each_use(op, [&](BufferId id, bool, bool writes) { if (writes) written[static_cast<size_t>(id)] = true; });
  }
}

}  // namespace ballast
