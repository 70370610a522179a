#include "ballast/graph/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ballast/base/error.h"
#include "ballast/base/units.h"

namespace ballast {

namespace {

struct RankPlan {
  std::array<int64_t, kStateKinds> bytes{};
  std::vector<int64_t> sent, layout;
  std::array<std::vector<int64_t>, static_cast<size_t>(Movement::Count)> moved;   // of `sent`, by movement
  double flops = 0;
  int64_t total() const {
    int64_t sum = 0;
    for (int64_t b : bytes) sum += b;
    return sum;
  }
};

// What step buffers take: two arenas, and the kernels' scratch.
struct Arenas {
  int64_t activations = 0, buffers = 0;
  explicit Arenas(const StepGraph& graph) : activations(graph.activation_bytes), buffers(graph.buffer_bytes) {}
  void hold(const Arenas& other) { activations = std::max(activations, other.activations), buffers = std::max(buffers, other.buffers); }
};

RankPlan plan_of(const StepGraph& graph, const Arenas& arenas, const Topology& topology, int64_t rank) {
  RankPlan plan;
  plan.sent.assign(static_cast<size_t>(topology.level_count()), 0);
  plan.layout = plan.sent;
  plan.moved.fill(plan.sent);
  for (int32_t b = 0; b < graph.persistent; ++b) {
    const Buffer& buffer = graph.buffers[static_cast<size_t>(b)];
    plan.bytes[static_cast<size_t>(buffer.state)] += buffer.bytes();
  }
  plan.bytes[static_cast<size_t>(StateKind::Activations)] += arenas.activations;
  plan.bytes[static_cast<size_t>(StateKind::Buffers)] += arenas.buffers + graph.scratch_bytes;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::Collective) add_sent_bytes(op, topology, rank, plan.sent);
    if (op.kind == OpKind::Collective && op.movement >= 0) add_sent_bytes(op, topology, rank, plan.moved[static_cast<size_t>(op.movement)]);
    if (op.kind == OpKind::Exchange) add_layout_bytes(graph, op, topology, rank, plan.layout);
    plan.flops += op.flops;
  }
  return plan;
}

std::vector<PlanSummary::Contributor> contributors(const StepGraph& graph, const Arenas& arenas) {
  std::map<std::string, int64_t> by_kind;
  for (int32_t b = 0; b < graph.persistent; ++b) {
    const Buffer& buffer = graph.buffers[static_cast<size_t>(b)];
    by_kind[buffer.name.substr(0, buffer.name.find('.'))] += buffer.bytes();
  }
  by_kind["activations"] += arenas.activations;
  by_kind["gathered weights, full gradients and wire"] += arenas.buffers;
  by_kind["kernel scratch"] += graph.scratch_bytes;
  std::vector<PlanSummary::Contributor> list;
  for (const auto& [name, bytes] : by_kind) list.push_back({name, bytes});
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return list;
}

}  // namespace

void add_sent_bytes(const Op& op, const Topology& topology, int64_t rank, std::span<int64_t> by_level) {
  if (op.subset != nullptr && op.what == what::kSwap) {   // to each member what lies in its part
    const std::vector<int64_t> members = topology.hop_members(rank, op.below, op.level);
    for (size_t j = 0; j < members.size(); ++j) {
      if (members[j] == rank) continue;
      const int64_t first = op.element + static_cast<int64_t>(j) * op.part;
      by_level[static_cast<size_t>(topology.common_level(rank, members[j]))] += op.codec.encoded_bytes(op.subset->count(first, first + op.part));
    }
    return;
  }
  const int64_t others = topology.group_size(op.level) / topology.group_size(op.below) - 1;
  for (int level = op.below + 1; level <= op.level; ++level) {
    by_level[static_cast<size_t>(level)] += op.bytes / others * topology.hop_peers(op.below, op.level, level);
  }
}

void add_layout_bytes(const StepGraph& graph, const Op& op, const Topology& topology, int64_t rank, std::span<int64_t> by_level) {
  for (const Transfer& send : op.sends) {
    if (send.rank != rank) by_level[static_cast<size_t>(topology.common_level(rank, send.rank))] += sent_bytes(graph, op, send);
  }
}

PlanSummary summarize(const Recipe& recipe, const Layout& layout) {
  const int level_count = recipe.topology.level_count();
  PlanSummary summary;
  summary.ranks = recipe.topology.ranks();
  summary.micro_batches = layout.micro_batches();
  std::array<int64_t, kStateKinds> most{};
  std::vector<int64_t> sent(static_cast<size_t>(level_count), 0), laid = sent;
  std::array<std::vector<int64_t>, static_cast<size_t>(Movement::Count)> moved;
  moved.fill(sent);
  const Arenas checkpoint(build_step(recipe, 0, {}, Work::Collect));   // alike on all ranks
  std::map<std::vector<int64_t>, RankPlan> known;  // by the slots and piece lengths of the micro-batches
  for (int64_t rank = 0; rank < summary.ranks; ++rank) {
    const auto& batches = layout.ranks[static_cast<size_t>(rank)];
    std::vector<int64_t> shape;
    for (const MicroBatchLayout& batch : batches) {
      shape.push_back(-1);
      // Attention shared with others, or laid out anew, is each rank's own.
      if (!batch.cuts.empty() || batch.remapped()) shape.push_back(-2 - rank);
      for (const Piece& piece : batch.pieces) shape.push_back(piece.length + piece.padding);
    }
    auto found = known.find(shape);
    if (found == known.end()) {
      const StepTokens none;
      const StepGraph graph = build_step(recipe, rank, batches, Work::Train, &none);
      Arenas arenas(graph);
      arenas.hold(checkpoint);
      found = known.emplace(shape, plan_of(graph, arenas, recipe.topology, rank)).first;
      if (found->second.total() > summary.bytes_per_rank) {
        summary.bytes_per_rank = found->second.total();
        summary.largest = contributors(graph, arenas);
      }
      if (summary.operations.empty()) {
        for (const Op& op : graph.ops) ++summary.operations[std::string(op.what)];
      }
    }
    for (size_t s = 0; s < kStateKinds; ++s) most[s] = std::max(most[s], found->second.bytes[s]);
    for (size_t l = 0; l < sent.size(); ++l) sent[l] += found->second.sent[l];
    for (size_t l = 0; l < sent.size(); ++l) laid[l] += found->second.layout[l];
    for (size_t m = 0; m < moved.size(); ++m) for (size_t l = 0; l < sent.size(); ++l) moved[m][l] += found->second.moved[m][l];
    summary.flops_per_step += found->second.flops;
  }
  for (int l = 0; l < level_count; ++l) summary.levels.push_back({recipe.topology.level(l).name, sent[static_cast<size_t>(l)], laid[static_cast<size_t>(l)]});
  for (const auto& level : summary.levels) {
    const auto l = static_cast<size_t>(&level - summary.levels.data());
    for (size_t m = 0; m < moved.size(); ++m) if (moved[m][l] > 0) summary.movements.push_back({name_of(static_cast<Movement>(m)), level.name, moved[m][l]});
  }
  for (size_t s = 0; s < kStateKinds; ++s) summary.memory.push_back({name_of(static_cast<StateKind>(s)), "device", most[s]});
  return summary;
}

Layout assumed_layout(int64_t ranks, int64_t micro_batches, int64_t micro_tokens, int64_t sequence) {
  Layout layout;
  layout.name = "assumed";
  MicroBatchLayout batch;
  for (int64_t begin = 0; begin < micro_tokens; begin += sequence) batch.pieces.push_back({0, 0, std::min(sequence, micro_tokens - begin), 0});
  layout.ranks.assign(static_cast<size_t>(ranks), std::vector<MicroBatchLayout>(static_cast<size_t>(micro_batches), batch));
  return layout;
}

namespace {

struct Depth { int64_t prefetch = 1, bytes = std::numeric_limits<int64_t>::max(); };

// More depth is mostly more memory, but not always: what is gathered early may lie where nothing else would.
Depth depth_that_fits(const Recipe& recipe, const Layout& layout, int64_t limit) {
  // Once gathers stand ready whenever the compute lane comes to them, more of them ahead bring nothing; three even out segments of unequal size.
  Depth least;
  for (const int64_t prefetch : {3, 2, 1}) {
    Recipe ahead = recipe;
    ahead.prefetch = prefetch;
    const int64_t bytes = summarize(ahead, layout).bytes_per_rank;
    if (bytes <= limit) return {prefetch, bytes};
    if (bytes < least.bytes) least = {prefetch, bytes};
  }
  return least;
}

}  // namespace

int64_t prefetch_that_fits(const Recipe& recipe, const Layout& layout, int64_t limit) { return depth_that_fits(recipe, layout, limit).prefetch; }

std::string settings_that_fit(const Recipe& recipe, const Layout& layout, int64_t limit) {
  std::vector<std::string> candidates{"ddp", "zero1", "zero2"};
  for (int level = recipe.topology.level_count() - 2; level >= 0; --level) candidates.push_back("hsdp(" + recipe.topology.level(level).name + ")");
  candidates.push_back("zero3");
  for (const bool recomputes : {false, true}) {
    if (recomputes && recipe.recompute_every == 1) break;
    for (const std::string& candidate : candidates) {
      Recipe other = recipe;
      other.placement = parse_placement_preset(candidate, recipe.topology);
      if (recomputes) other.recompute_every = 1;
      const Depth depth = depth_that_fits(other, layout, limit);
      if (depth.bytes > limit) continue;
      other.prefetch = recipe.prefetch;
      const bool as_it_is = summarize(other, layout).bytes_per_rank <= limit;
      return "placement=" + candidate + (recomputes ? " train.recompute=block" : "") + (as_it_is ? "" : fmt::format(" train.prefetch={}", depth.prefetch));
    }
  }
  return "";
}

void require_fit(const PlanSummary& summary, const Recipe& recipe, const Layout& layout, int64_t limit) {
  if (summary.bytes_per_rank <= limit) return;
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(3, summary.largest.size()); ++i) {
    largest += fmt::format("{}{} {}", i == 0 ? "" : ", ", summary.largest[i].name, format_bytes(summary.largest[i].bytes));
  }
  const std::string fitting = settings_that_fit(recipe, layout, limit);
  throw Error(ErrorKind::OutOfMemory, fmt::format("the plan needs {} per rank, the limit is {}", format_bytes(summary.bytes_per_rank), format_bytes(limit)))
      .at("placement " + recipe.placement.name)
      .found("largest: " + largest)
      .expected(fmt::format("at most {} per rank", format_bytes(limit)))
      .cure(fitting.empty() ? "no preset fits on these ranks, with train.recompute: block neither: use more ranks, a smaller batch.micro_tokens, or a smaller model"
                            : fmt::format("{} would fit", fitting));
}

}  // namespace ballast
