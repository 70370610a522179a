// The runners of attention over units, of what brings partial results together, and of exchanges of rows.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "ballast/base/check.h"
#include "ballast/engine/engine.h"
#include "ballast/engine/run.h"
#include "ballast/kernel/attention.h"

namespace ballast {

namespace {

at::Tensor rows_of(const at::Tensor& tensor, int64_t begin, int64_t count) { return tensor.narrow(0, begin, count); }

}  // namespace

void Engine::execute_attention(const Op& op, GraphRun& run) {
  const auto in = [&](size_t i) -> const at::Tensor& { return memory_.tensor(op.inputs[i]); };
  const auto out = [&](size_t i) -> at::Tensor { return memory_.tensor(op.outputs[i]); };
  if (op.what == what::kAdd) {
    for (size_t i = 0; i < op.inputs.size(); ++i) out(i).add_(in(i));
    return;
  }
  if (op.what == what::kSumRows) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const at::Tensor target = rows_of(out(i), op.into_begin, op.part);
      if (op.parts == 1) {
        target.copy_(rows_of(in(i), op.begin, op.part));
        continue;
      }
      // In the order of the members; the first part takes the sum.
      const at::Tensor sum = rows_of(in(i), op.begin, op.part);
      for (int64_t part = 1; part < op.parts; ++part) sum.add_(rows_of(in(i), op.begin + part * op.part, op.part));
      target.copy_(sum);
    }
    return;
  }
  if (op.what == what::kMerge) {
    std::vector<at::Tensor> parts, lses;
    for (int64_t part = 0; part < op.parts; ++part) {
      parts.push_back(rows_of(in(0), part * op.part, op.part));
      lses.push_back(rows_of(in(1), part * op.part, op.part));
    }
    const ModelConfig& config = recipe_.model.config;
    kernel::attention_merge({config.heads, config.kv_heads, config.head_dim}, parts, lses, rows_of(out(0), op.into_begin, op.part), rows_of(out(1), op.into_begin, op.part));
    return;
  }
  if (op.what == what::kSplitHeads) {
    for (size_t i = 0; i < op.inputs.size(); ++i) kernel::split_heads(rows_of(in(i), op.begin, op.part), op.parts, out(i));
    return;
  }
  if (op.what == what::kJoinHeads) {
    for (size_t i = 0; i < op.inputs.size(); ++i) kernel::join_heads(in(i), op.parts, rows_of(out(i), op.into_begin, op.part));
    return;
  }
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(op.segment)];
  const RoleTensors none;
  SegmentCall call{recipe_.model.config, segment.layer, run.batches[static_cast<size_t>(op.micro_batch)], none, none};
  call.train = run.train;
  call.seed = options_.seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(run.settings.step);
  call.heads_part = op.index;
  call.heads_parts = op.parts;
  // Outputs may end where the cut sequences do.
  const auto queries = [&](const at::Tensor& tensor) { return rows_of(tensor, 0, out(0).size(0)); };
  const auto keys = [&](const at::Tensor& tensor) { return op.part < 0 ? tensor : rows_of(tensor, op.begin, op.part); };
  if (op.what == what::kAttend) {
    at::Tensor o = out(0), lse = queries(out(1));
    attend_forward(call, op.units, queries(in(0)), keys(in(1)), keys(in(2)), o, lse, op.accumulate);
  } else if (op.what == what::kAttendDelta) {
    at::Tensor delta = out(0);
    attend_delta(call, in(0), in(1), delta);
  } else if (op.what == what::kAttendBackward) {
    at::Tensor dq = out(0), dk = out(1), dv = out(2);
    attend_backward(call, op.units, queries(in(0)), keys(in(1)), keys(in(2)), queries(in(3)), queries(in(4)), queries(in(5)), dq, dk, dv, op.accumulate);
  } else {
    BALLAST_CHECK(false, "no runner for {}", op.what);
  }
}

void Engine::execute_exchange(const Op& op) {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  const auto row_bytes = [&](const at::Tensor& tensor) { return tensor.size(0) == 0 ? 0 : static_cast<int64_t>(tensor.nbytes()) / tensor.size(0); };
  for (int64_t part = 0; part < op.parts; ++part) {
    for (const Transfer& transfer : op.sends) {
      const at::Tensor& from = memory_.tensor(op.inputs[static_cast<size_t>(transfer.set * op.parts + part)]);
      sends.push_back({transfer.rank, static_cast<const char*>(from.data_ptr()) + transfer.row * row_bytes(from), transfer.rows * row_bytes(from)});
    }
    for (const Transfer& transfer : op.receives) {
      const at::Tensor& to = memory_.tensor(op.outputs[static_cast<size_t>(transfer.set * op.parts + part)]);
      receives.push_back({transfer.rank, static_cast<char*>(to.data_ptr()) + transfer.row * row_bytes(to), transfer.rows * row_bytes(to)});
    }
  }
  communicator_.exchange(sends, receives, op.tag, Purpose{describe(op), op.tag});
}

}  // namespace ballast
