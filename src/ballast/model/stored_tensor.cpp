// Stored elements as fp32: the conversions that reading weights needs, safe for unaligned bytes.
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/model/safetensors.h"

namespace ballast {

namespace {

constexpr int64_t kGrain = 1 << 16;  // elements per task

template <class Element>
void convert(const std::byte* data, int64_t count, float* out) {
  at::parallel_for(0, count, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Element element;
      std::memcpy(&element, data + i * static_cast<int64_t>(sizeof element), sizeof element);
      out[i] = static_cast<float>(element);
    }
  });
}

}  // namespace

void read_as_float(const StoredTensor& tensor, const std::string& name, int64_t begin, int64_t count, float* out) {
  BALLAST_CHECK(begin >= 0 && count >= 0 && begin + count <= tensor.numel, "[{}, +{}) of {}", begin, count,
                tensor.numel);
  const std::byte* data = tensor.data + begin * safetensors_element_bytes(tensor.dtype);
  if (tensor.dtype == "F32") {
    convert<float>(data, count, out);
  } else if (tensor.dtype == "BF16") {
    convert<c10::BFloat16>(data, count, out);
  } else if (tensor.dtype == "F16") {
    convert<c10::Half>(data, count, out);
  } else if (tensor.dtype == "F64") {
    for (int64_t i = 0; i < count; ++i) {
      double element;
      std::memcpy(&element, data + i * 8, 8);
      // The comparison comes first: converting an out-of-range double would be undefined.
      if (std::isfinite(element) && std::fabs(element) > static_cast<double>(std::numeric_limits<float>::max()))
        throw Error(ErrorKind::CorruptFile, "a weight does not fit fp32")
            .at(fmt::format("tensor '{}'", printable(name)), fmt::format("element {}", begin + i))
            .found(fmt::format("{}", element))
            .cure("the weights are damaged or of another model: fetch them again");
      out[i] = static_cast<float>(element);
    }
  } else {
    throw Error(ErrorKind::CorruptFile, "weights of this dtype are not supported")
        .at(fmt::format("tensor '{}'", printable(name)))
        .found(tensor.dtype)
        .expected("F32, BF16, F16 or F64")
        .cure("convert the weights with transformers: model.float().save_pretrained(FOLDER)");
  }
}

int64_t first_nonfinite(const float* values, int64_t count) {
  std::atomic<int64_t> least{count};
  at::parallel_for(0, count, kGrain, [&](int64_t first, int64_t last) {
    uint32_t magnitude = 0;
    for (int64_t i = first; i < last; ++i) magnitude = std::max(magnitude, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
    if (magnitude < 0x7f800000u) return;
    while (std::isfinite(values[first])) ++first;
    for (int64_t known = least; first < known && !least.compare_exchange_weak(known, first);) {
    }
  });
  return least;
}

}  // namespace ballast
