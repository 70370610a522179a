// Final norm, logits and cross entropy, in chunks of the trained rows only; forward and backward in one pass over a chunk.
#include "ballast/kernel/cross_entropy.h"
#include "ballast/kernel/embedding.h"
#include "ballast/kernel/gemm.h"
#include "ballast/model/segment_parts.h"
#include "ballast/plan/head_chunk.h"

namespace ballast {
using segment::gradient, segment::weight;

namespace {

Role head_role(const ModelConfig& config) { return config.tied_head ? Role::TokenEmbedding : Role::HeadWeight; }

// Runs f(first, rows) over the vocabulary: whole, or in blocks where gradients of logits are rounded for bf16 units.
template <class F>
void over_vocabulary(const at::Tensor& head, F&& f) {
  const int64_t vocab = head.size(0), block = kernel::product_dtype(head.scalar_type()) == at::kFloat ? vocab : kHeadVocabBlock;
  for (int64_t first = 0; first < vocab; first += block) f(first, std::min(block, vocab - first));
}

// Norm and logits of some rows of x.
struct Chunk {
  segment::Statistics stats;
  at::Tensor normed;  // [rows, H], an operand of products
  at::Tensor logits;  // [rows, vocab] fp32
};

Chunk logits_of(const SegmentCall& call, const at::Tensor& x) {
  const ModelConfig& config = call.config;
  const at::Tensor& head = weight(call, head_role(config));
  const auto wide = x.options().dtype(at::kFloat);
  Chunk chunk{segment::new_statistics(config, x.size(0)),
              at::empty({x.size(0), config.hidden}, x.options().dtype(kernel::product_dtype(x.scalar_type()))),
              at::empty({x.size(0), config.vocab_size}, wide)};
  kernel::norm_statistics(x, config.norm_eps, chunk.stats.mean, chunk.stats.rstd);
  kernel::norm_apply(x, chunk.stats.mean, chunk.stats.rstd, weight(call, Role::FinalNormWeight), weight(call, Role::FinalNormBias),
                     chunk.normed);
  over_vocabulary(head, [&](int64_t first, int64_t rows) {
    kernel::product(chunk.normed, head.narrow(0, first, rows).t(), chunk.logits.narrow(1, first, rows));
  });
  return chunk;
}

// Gradients of a chunk whose logits hold d(loss)/d(logits).
void chunk_backward(const SegmentCall& call, const at::Tensor& x, const Chunk& chunk, const at::Tensor& dx, bool first_chunk) {
  const Role role = head_role(call.config);
  const at::Tensor &head = weight(call, role), &d_head = gradient(call, role);
  const at::Tensor dn = at::empty({x.size(0), x.size(1)}, x.options().dtype(at::kFloat));
  const bool adds_head = !first_chunk || segment::adds(call, role), adds_norm = !first_chunk || segment::adds(call, Role::FinalNormWeight, Role::FinalNormBias);
  const bool native = chunk.normed.scalar_type() == at::kBFloat16;
  over_vocabulary(head, [&](int64_t first, int64_t rows) {
    at::Tensor d_logits = chunk.logits.narrow(1, first, rows);
    if (native) {
      const at::Tensor narrow = at::empty({x.size(0), rows}, x.options());
      kernel::convert(d_logits, narrow);
      d_logits = narrow;
    }
    kernel::product(d_logits, head.narrow(0, first, rows), dn, first > 0);
    if (d_head.defined()) kernel::product(d_logits.t(), chunk.normed, d_head.narrow(0, first, rows), adds_head);
  });
  kernel::norm_backward(x, chunk.stats.mean, chunk.stats.rstd, weight(call, Role::FinalNormWeight), dn, dx, false,
                        gradient(call, Role::FinalNormWeight), gradient(call, Role::FinalNormBias), adds_norm);
}

// Losses, and with a defined dx the backward.
void run_head(const SegmentCall& call, const at::Tensor& x, double scale, const at::Tensor& dx, const at::Tensor& token_losses) {
  const int64_t tokens = call.batch.tokens();
  if (tokens == 0) return segment::contribute_nothing(call);
  const int64_t* targets = call.batch.targets.data_ptr<int64_t>();
  std::vector<int64_t> rows, row_targets;  // of the trained slots
  for (int64_t t = 0; t < tokens; ++t) {
    if (targets[t] == -1) continue;
    rows.push_back(t);
    row_targets.push_back(targets[t]);
  }
  const int64_t trained = static_cast<int64_t>(rows.size());
  const bool all = trained == tokens;
  if (trained == 0 && dx.defined()) segment::contribute_nothing(call);
  if (!all) token_losses.zero_();
  if (!all && dx.defined()) dx.zero_();
  float* losses = token_losses.data_ptr<float>();
  const int64_t most = head_chunk_rows(trained, call.config.vocab_size);
  std::vector<float> chunk_losses(static_cast<size_t>(most));
  for (int64_t first = 0; first < trained; first += most) {
    const int64_t count = std::min(most, trained - first);
    const int64_t* chosen = rows.data() + first;
    at::Tensor chunk_x = x.narrow(0, first, all ? count : 0);
    if (!all) {
      chunk_x = at::empty({count, x.size(1)}, x.options());
      kernel::gather_rows(x, chosen, chunk_x);
    }
    const Chunk chunk = logits_of(call, chunk_x);
    kernel::cross_entropy(chunk.logits, row_targets.data() + first, chunk_losses.data(), dx.defined(), scale);
    for (int64_t i = 0; i < count; ++i) losses[chosen[i]] = chunk_losses[static_cast<size_t>(i)];
    if (!dx.defined()) continue;
    if (all) {
      chunk_backward(call, chunk_x, chunk, dx.narrow(0, first, count), first == 0);
    } else {
      const at::Tensor chunk_dx = at::empty_like(chunk_x);
      chunk_backward(call, chunk_x, chunk, chunk_dx, first == 0);
      kernel::scatter_rows(chunk_dx, chosen, dx);
    }
  }
}

}  // namespace

void head_train(const SegmentCall& call, const at::Tensor& x, double scale, at::Tensor& dx, at::Tensor& token_losses) {
  run_head(call, x, scale, dx, token_losses);
}

void head_loss(const SegmentCall& call, const at::Tensor& x, at::Tensor& token_losses) { run_head(call, x, 0.0, {}, token_losses); }

at::Tensor head_logits(const SegmentCall& call, const at::Tensor& x) {
  if (x.size(0) == 0) return at::empty({0, call.config.vocab_size}, x.options().dtype(at::kFloat));
  return logits_of(call, x).logits;
}

}  // namespace ballast
