#pragma once
// Table look-ups and their gradient: x[t] = tokens[ids[t]] + positions[position[t]].
#include <ATen/core/Tensor.h>

namespace ballast::kernel {

// `position_table` may be undefined. Throws Error(Data) for an index outside its table.
void embed(const at::Tensor& ids, const at::Tensor& token_table, const at::Tensor& positions, const at::Tensor& position_table,
           const at::Tensor& x);
// table_gradient = 0.
void zero_rows(const at::Tensor& table_gradient);
// table_gradient[indices[t]] += dx[t], in the order of t for every row: deterministic. fp32 [rows, H].
void scatter_add(const at::Tensor& indices, const at::Tensor& dx, const at::Tensor& table_gradient);
// y[i] = x[rows[i]]; and x[rows[i]] = y[i].
void gather_rows(const at::Tensor& x, const int64_t* rows, const at::Tensor& y);
void scatter_rows(const at::Tensor& y, const int64_t* rows, const at::Tensor& x);

}  // namespace ballast::kernel
