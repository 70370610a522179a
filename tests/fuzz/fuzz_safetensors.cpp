// Any bytes as a safetensors file: a result or a typed error. What is accepted is read to the end.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ballast::SafetensorsContent content =
        ballast::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    for (const auto& [name, tensor] : content.tensors) {
      if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16" && tensor.dtype != "F64") continue;
      std::vector<float> values(static_cast<size_t>(tensor.numel));
      ballast::read_as_float(tensor, name, 0, tensor.numel, values.data());
    }
  } catch (const ballast::Error&) {
  }
  return 0;
}
