#pragma once
// Cross entropy of rows of fp32 logits, and its gradient in place of them.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast::kernel {

// losses[i] = logsumexp(logits[i]) - logits[i][targets[i]]; with `gradient`, logits[i] becomes
// scale * (softmax(logits[i]) - onehot(targets[i])). logits [rows, vocab] fp32 contiguous.
void cross_entropy(const at::Tensor& logits, const int64_t* targets, float* losses, bool gradient, double scale);

}  // namespace ballast::kernel
