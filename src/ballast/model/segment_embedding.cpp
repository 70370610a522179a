// ids, positions -> x.
#include "ballast/kernel/embedding.h"
#include "ballast/model/segment_parts.h"

namespace ballast {
using segment::gradient, segment::weight;
using kernel::DropoutPlace;

void embedding_forward(const SegmentCall& call, at::Tensor& x) {
  if (call.batch.tokens() == 0) return;
  kernel::embed(call.batch.ids, weight(call, Role::TokenEmbedding), call.batch.positions, weight(call, Role::PositionEmbedding), x);
  const double p = call.train ? call.config.dropout_embedding : 0.0;
  if (p > 0) segment::dropout(call, x, x, DropoutPlace::Embedding, p);
}

void embedding_backward(const SegmentCall& call, const at::Tensor& dx) {
  const at::Tensor &tokens = gradient(call, Role::TokenEmbedding), &positions = gradient(call, Role::PositionEmbedding);
  if (call.batch.tokens() == 0) return segment::contribute_nothing(call);
  if (!tokens.defined() && !positions.defined()) return;
  at::Tensor upper = dx;
  const double p = call.train ? call.config.dropout_embedding : 0.0;
  if (p > 0) {
    upper = at::empty_like(dx);
    segment::dropout(call, dx, upper, DropoutPlace::Embedding, p);
  }
  if (tokens.defined()) {
    if (!call.config.tied_head && !segment::adds(call, Role::TokenEmbedding)) kernel::zero_rows(tokens);
    kernel::scatter_add(call.batch.ids, upper, tokens);
  }
  if (positions.defined()) {
    if (!segment::adds(call, Role::PositionEmbedding)) kernel::zero_rows(positions);
    kernel::scatter_add(call.batch.positions, upper, positions);
  }
}

}  // namespace ballast
