// Gathers run over rows; the scatter runs over columns, every task walking all tokens in order.
#include "ballast/kernel/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "ballast/base/error.h"
#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

void check_range(const at::Tensor& indices, int64_t limit, const char* what) {
  const int64_t* data = indices.data_ptr<int64_t>();
  for (int64_t t = 0; t < indices.numel(); ++t) {
    if (data[t] >= 0 && data[t] < limit) continue;
    throw Error(ErrorKind::Data, fmt::format("{} outside its table", what))
        .at("micro-batch", fmt::format("slot {}", t))
        .found(std::to_string(data[t]))
        .expected(fmt::format("0 to {}", limit - 1))
        .cure("check that the tokenizer and the sequence length fit the model");
  }
}

template <class T>
struct SumRows {
  BALLAST_INLINE static void run(const T* a, const T* b, T* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(y + i, load(a + i) + load(b + i));
  }
};

template <class T>
struct AddRow {
  BALLAST_INLINE static void run(const T* a, float* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += load(a + i);
  }
};

}  // namespace

void embed(const at::Tensor& ids, const at::Tensor& token_table, const at::Tensor& positions, const at::Tensor& position_table,
           const at::Tensor& x) {
  const int64_t rows = x.size(0), width = x.size(1);
  check_range(ids, token_table.size(0), "a token id is");
  if (position_table.defined()) check_range(positions, position_table.size(0), "a position is");
  with_element(x, [&]<class T>(T*) {
    const T *tokens = pointer<T>(token_table), *places = pointer<T>(position_table);
    const int64_t *id = pointer<int64_t>(ids), *position = pointer<int64_t>(positions);
    T* out = pointer<T>(x);
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        if (places != nullptr) run<SumRows<T>>(tokens + id[t] * width, places + position[t] * width, out + t * width, width);
        else std::memcpy(out + t * width, tokens + id[t] * width, static_cast<size_t>(width) * sizeof(T));
      }
    });
  });
}

void zero_rows(const at::Tensor& table_gradient) {
  const int64_t width = table_gradient.size(1);
  float* out = pointer<float>(table_gradient);
  at::parallel_for(0, table_gradient.size(0), rows_per_task(width), [&](int64_t begin, int64_t end) {
    std::memset(out + begin * width, 0, static_cast<size_t>((end - begin) * width) * sizeof(float));
  });
}

void scatter_add(const at::Tensor& indices, const at::Tensor& dx, const at::Tensor& table_gradient) {
  const int64_t rows = dx.size(0), width = dx.size(1);
  constexpr int64_t kColumns = 128;
  float* out = pointer<float>(table_gradient);
  const int64_t* index = pointer<int64_t>(indices);
  with_element(dx, [&]<class T>(T*) {
    const T* data = pointer<T>(dx);
    at::parallel_for(0, (width + kColumns - 1) / kColumns, rows_per_task(rows * kColumns), [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kColumns, count = std::min(end * kColumns, width) - first;
      for (int64_t t = 0; t < rows; ++t) run<AddRow<T>>(data + t * width + first, out + index[t] * width + first, count);
    });
  });
}

void gather_rows(const at::Tensor& x, const int64_t* rows, const at::Tensor& y) {
  const size_t bytes = static_cast<size_t>(x.size(1) * x.element_size());
  const auto* from = static_cast<const char*>(x.data_ptr());
  auto* to = static_cast<char*>(y.data_ptr());
  at::parallel_for(0, y.size(0), rows_per_task(x.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(to + static_cast<size_t>(i) * bytes, from + static_cast<size_t>(rows[i]) * bytes, bytes);
  });
}

void scatter_rows(const at::Tensor& y, const int64_t* rows, const at::Tensor& x) {
  const size_t bytes = static_cast<size_t>(x.size(1) * x.element_size());
  const auto* from = static_cast<const char*>(y.data_ptr());
  auto* to = static_cast<char*>(x.data_ptr());
  at::parallel_for(0, y.size(0), rows_per_task(x.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(to + static_cast<size_t>(rows[i]) * bytes, from + static_cast<size_t>(i) * bytes, bytes);
  });
}

}  // namespace ballast::kernel
