#pragma once
// The ways to lay a step's selection out over ranks and micro-batches: one function per policy behind one table.
#include <span>
#include <string>
#include <vector>

#include "ballast/plan/layout.h"

namespace ballast {

struct LayoutLimits {
  int64_t ranks = 1;
  int64_t micro_tokens = 0;   // token slots of one micro-batch on one rank
};

// packed: whole samples, longest first, each into the least filled micro-batch, or by best fit where that needs fewer micro-batches; their number is
// the smallest that either fits. padded: samples in order, each padded to the longest of its micro-batch (the baseline).
// Throws Error(Usage) for an unknown name or a sample longer than micro_tokens (naming the smallest that would do).
Layout make_layout(const std::string& policy, std::span<const SampleRef> selection, const LayoutLimits& limits);
std::vector<std::string> layout_policies();

}  // namespace ballast
