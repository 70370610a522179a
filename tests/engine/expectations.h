#pragma once
// What every strategy must fulfil: the numbers of one process, and the bytes and memory of its plan.
#include "tests/engine/thread_run.h"

namespace ballast::testing {

Level level(const char* name, int64_t size);
// The same case on one process, in one micro-batch, nothing sharded, cut or recomputed.
const Outcome& reference(const Case& like);
void expect_equal_to_reference(const Outcome& got, const Case& c);
// Bytes and memory as planned, replicas bit-equal, padding zero.
void expect_plan_is_exact(const Outcome& got);

}  // namespace ballast::testing
