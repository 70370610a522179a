#pragma once
// Specs of block codecs with every kernel that this CPU can run, and numbers to encode: what the tests of this folder
// go through.
#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "ballast/codec/block_kernels.h"

namespace ballast {

struct BlockCase {
  CodecSpec spec;
  BlockKernels kernels;
};

inline std::string name_of_case(const BlockCase& one) {
  std::string name = fmt::format("{}_{}", one.spec.text(), one.kernels.name);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
inline void PrintTo(const BlockCase& one, std::ostream* stream) { *stream << name_of_case(one); }

inline std::vector<CodecSpec> block_specs() {
  std::vector<CodecSpec> specs;
  for (const char* name : {"int8", "int4"}) {
    for (const int64_t block : {8, 40, 64, 256}) {
      for (const bool symmetric : {true, false}) {
        for (const bool stochastic : {false, true}) specs.push_back({name, block, symmetric, stochastic});
      }
    }
  }
  return specs;
}

inline std::vector<BlockCase> block_cases() {
  std::vector<BlockCase> cases;
  for (const CodecSpec& spec : block_specs()) {
    for (const BlockKernels& kernels : block_kernels(spec)) cases.push_back({spec, kernels});
  }
  return cases;
}

// Uniform in [-1, 1).
inline std::vector<float> random_values(int64_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values) value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  return values;
}

}  // namespace ballast
