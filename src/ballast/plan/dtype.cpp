#include "ballast/plan/dtype.h"

namespace ballast {

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Float32: case DType::Int32: return 4;
    case DType::BFloat16: case DType::Float16: return 2;
    case DType::Int64: case DType::Float64: return 8;
    case DType::UInt8: return 1;
  }
  return 0;
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::Float32: return "fp32";
    case DType::BFloat16: return "bf16";
    case DType::Float16: return "fp16";
    case DType::Int64: return "int64";
    case DType::Int32: return "int32";
    case DType::UInt8: return "uint8";
    case DType::Float64: return "fp64";
  }
  return "?";
}

}  // namespace ballast
