#pragma once
// Products of small matrices within one thread, for attention's tiles: the right operand is copied once into slivers of 16 columns, the left
// one is read where it lies. Each element of the result is summed in one order, whatever stands around it.
#include <c10/util/BFloat16.h>

#include <cstdint>

#include "ballast/plan/attention_tiles.h"

namespace ballast::kernel {

// b [depth, columns] -> sliver after sliver, each [depth, 16], missing columns zero: sliver_columns(columns) * depth floats. b lies row-major
// with `stride` elements between rows, or, if `transposed`, its transpose does.
void pack_slivers(const float* b, int64_t stride, bool transposed, int64_t depth, int64_t columns, float* out);
void pack_slivers(const c10::BFloat16* b, int64_t stride, bool transposed, int64_t depth, int64_t columns, float* out);

// c [m, n] = op(a) b, or += ; op(a) [m, depth], a row-major with `lda` floats between rows, or its transpose; b packed, of at least n columns.
void sliver_product(bool transpose_a, int64_t m, int64_t n, int64_t depth, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
                    bool accumulate);

}  // namespace ballast::kernel
