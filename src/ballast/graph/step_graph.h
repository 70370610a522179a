#pragma once
// A step as data: typed operations over buffers with bytes, FLOPs and a lane. The engine runs it; the plan and, later, the
// simulator read the very same graph. Operations stand in program order, equal on all ranks; an operation may start when
// everything in `after` is done and it is the next one of its lane.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/graph/subset.h"
#include "ballast/plan/attention.h"
#include "ballast/plan/codec_spec.h"
#include "ballast/plan/dtype.h"
#include "ballast/plan/feedback_spec.h"

namespace ballast {

enum class OpKind : uint8_t { Compute, Collective, Exchange, Copy, Codec, Update, Host };
const char* name_of(OpKind kind);

// Lane 0 is compute; 1 + l is the link lane of topology level l.
using Lane = int16_t;
constexpr Lane kComputeLane = 0;
constexpr Lane link_lane(int level) { return static_cast<Lane>(1 + level); }

// Under which heading of the memory report a buffer stands.
enum class StateKind : uint8_t { Weights, Secondary, Gradients, Optimizer, Activations, Buffers, Count };
constexpr size_t kStateKinds = static_cast<size_t>(StateKind::Count);
const char* name_of(StateKind state);

using BufferId = int32_t;
constexpr BufferId kNoBuffer = -1;

struct Buffer {
  std::string name;                 // "weights.block.3", "block.3.finish.x1/0"
  StateKind state = StateKind::Buffers;
  bool persistent = false;          // outlives the graph: same id in every graph of a run
  DType dtype = DType::Float32;
  std::vector<int64_t> shape;       // row-major
  BufferId alias_of = kNoBuffer;    // persistent only: lies inside that buffer, `alias_offset` elements from its start (same dtype)
  int64_t alias_offset = 0;
  int64_t arena_offset = -1;        // bytes; step buffers only, set by plan_arena
  int64_t numel() const;
  int64_t bytes() const;            // 0 for an alias
};

// Rows of the tensors of an exchange that go to, or come from, a rank. All to and from one rank pair up in order.
struct Transfer {
  int64_t rank = 0, row = 0, rows = 0;
  int64_t set = 0;                  // which `Op::parts` tensors: those from inputs (outputs) [set * parts] on
  bool operator==(const Transfer&) const = default;
};

struct Op {
  OpKind kind = OpKind::Compute;
  std::string_view what;            // the kernel's name: one of namespace what
  Lane lane = kComputeLane;
  int32_t segment = -1, micro_batch = -1, slice = -1, group = -1;
  int32_t cut = -1;                 // CutSequence::order, where the op is about one; its `slice` is then the step of the ring
  bool accumulate = false;          // adds to its output instead of overwriting it
  uint32_t fresh = 0;               // bit i: gradients[i] holds nothing yet; what the op contributes overwrites it
  // A hop runs over the levels (below, level]. `begin` and `part` count elements: of the range [begin, begin + members * part) part j belongs to
  // member j (Topology::hop_members). Copies and codecs move `part` elements.
  int32_t level = -1, below = -1;
  int32_t movement = -1;            // of a training step's hop: the index of its Movement (placement.h)
  int64_t begin = 0, part = 0;      // begin: in the buffer that is read (inputs[0]; of a gather, outputs[0])
  int64_t into_begin = 0;           // in outputs[0], where that is another buffer
  int64_t element = 0;              // of the group's padded buffer: the first that a copy or codec moves, or of a hop's range
  // Only these of the elements: buffers hold them packed, in order, and count from the first of them; the parts of a hop are as large as what of
  // them belongs to each member. A copy or codec finds them in their places in a buffer of all elements where it is spread.
  std::shared_ptr<const Subset> subset;
  bool spread_in = false, spread_out = false;
  CodecSpec codec, into;            // how the elements of the one and of the other are encoded
  FeedbackSpec feedback;            // where `saved` holds error-feedback buffers
  bool first_feedback = false;      // the first encoding of the step into that buffer: where a reset falls
  uint64_t tag = 0;
  int64_t bytes = 0;                // payload bytes this rank sends; in a hop the same to each other member, unless it swaps a subset
  double flops = 0;
  std::vector<AttendUnit> units;    // attention: rows of inputs
  std::vector<Transfer> sends, receives;   // exchanges: rows of inputs[i] go out, rows of outputs[i] come in; with itself: a copy
  int64_t parts = 1, index = 0;     // attention: over part `index` of `parts` equal parts of the heads; merge, sum_rows, split, join: how many parts;
                                    // exchange: tensors that travel together
  // What it touches; the meaning of the order is the kernel's.
  std::vector<BufferId> inputs, outputs, saved, weights, gradients;
  std::vector<int32_t> after;       // indices of earlier operations, on other lanes (the own lane's order is implied)
};

// The kernels that graphs name. The engine has one runner for each.
namespace what {
inline constexpr std::string_view kForward = "forward";            // segment forward; inputs as plan/activations.h lists them
inline constexpr std::string_view kRecompute = "recompute";        // writes `saved` again
inline constexpr std::string_view kBackward = "backward";
inline constexpr std::string_view kHeadTrain = "head_train";       // loss and its gradient in one pass
inline constexpr std::string_view kHeadLoss = "head_loss";
inline constexpr std::string_view kCopy = "copy";                  // outputs[0][into_begin, + part) = inputs[0][begin, + part), same codec
inline constexpr std::string_view kTranscode = "transcode";        // the same from `codec` to `into`; saved[0]: error feedback
inline constexpr std::string_view kGather = "gather";              // in place on outputs[0], encoded by `codec`
inline constexpr std::string_view kSwap = "swap";                  // all-to-all: part j of inputs[0] to member j; outputs[0] = what the others sent
inline constexpr std::string_view kSum = "sum";                    // outputs[0] = own part of inputs[0] + parts in inputs[1], from `codec` to `into`; saved[0]: feedback
// Attention. Keys are rows [begin, begin + part) of k and v, all of them if part is -1; `units` count from there. `part` otherwise counts rows.
inline constexpr std::string_view kAttend = "attend";              // q, k, v -> o, lse of the units' rows; accumulate: merged with what these hold
inline constexpr std::string_view kAttendDelta = "attend_delta";   // o, d_o -> delta
inline constexpr std::string_view kAttendBackward = "attend_backward";  // q, k, v, lse, delta, d_o -> dq, dk, dv; accumulate: adds to dq
inline constexpr std::string_view kMerge = "merge";                // `parts` times `part` rows of partial o, lse -> rows [into_begin, + part) of o, lse
inline constexpr std::string_view kSumRows = "sum_rows";           // outputs[i] rows [into_begin, + part) = sum of `parts` times `part` rows of inputs[i] from `begin` on
inline constexpr std::string_view kAdd = "add";                    // outputs[i] += inputs[i]
inline constexpr std::string_view kSplitHeads = "split_heads";     // rows [begin, + part) of [rows, parts * w] -> [parts * part, w]
inline constexpr std::string_view kJoinHeads = "join_heads";       // and back into rows [into_begin, + part)
inline constexpr std::string_view kExchange = "exchange";          // sends rows of inputs, receives rows of outputs, `parts` tensors at a time
inline constexpr std::string_view kNorm = "norm";                  // gradient norm, loss and counts, agreed by all ranks
inline constexpr std::string_view kUpdate = "update";              // optimizer on one group's shard
inline constexpr std::string_view kSink = "sink";                  // hands a gathered group to the caller
}  // namespace what

struct StepGraph {
  std::vector<Buffer> buffers;      // persistent ones first
  int32_t persistent = 0;           // how many
  std::vector<Op> ops;
  int16_t lanes = 1;
  uint64_t hop_tags = 0;            // given out so far
  int64_t activation_bytes = 0;     // size of the two arenas
  int64_t buffer_bytes = 0;
  int64_t scratch_bytes = 0;        // bound of what kernels take while they run

  uint64_t fingerprint() const;     // of kinds, kernels, tags, order: equal on all ranks
};

// Bytes of one transfer that an exchange sends.
int64_t sent_bytes(const StepGraph& graph, const Op& op, const Transfer& send);

// Adds to every op's `after` the operations on other lanes whose reads or writes conflict with its own (RAW, WAR, WAW).
void add_data_dependencies(StepGraph& graph);
// Gives every step buffer a place in the arena of its state (first fit over program order, 256-byte aligned), sets the arena sizes, and
// adds the dependencies that reuse of a place needs. After this the planned peak is exact whatever the lanes' timing. `apart`: buffers that only
// links touch share places with those of the same outermost lane only, so that neither compute nor a fast link waits for a slow link's place.
void plan_arena(StepGraph& graph, bool apart = false);
// Throws Error(Internal) if an op reads a step buffer that nothing wrote, waits for a later op, or names a missing buffer.
void check_graph(const StepGraph& graph);

}  // namespace ballast
