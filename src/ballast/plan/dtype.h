#pragma once
// Element types as the plan knows them: a name and a size, no tensors.
#include <cstdint>
#include <string>

namespace ballast {

enum class DType : uint8_t { Float32, BFloat16, Float16, Int64, Int32, UInt8, Float64 };

int64_t size_of(DType dtype);  // bytes
const char* name_of(DType dtype);

}  // namespace ballast
