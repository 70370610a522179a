#pragma once
// Reads tensor states back: the parts that a rank asks for, from whichever shards hold them.
#include <c10/core/ScalarType.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/writer.h"
#include "ballast/model/safetensors.h"

namespace ballast {

// The name of an item in a shard, "adam.m/transformer.wte.weight@0:512", and back. Throws Error(CorruptFile) at `file`.
std::string item_name(const StateItem& item);
StateItem parse_item_name(const std::string& name, const std::string& file);
// The safetensors name of a dtype: "F32".
std::string stored_dtype(c10::ScalarType dtype);

class StateReader {
 public:
  // Maps all shards and indexes their items. Throws Error(CorruptFile) for a shard that is none.
  explicit StateReader(const CheckpointHandle& checkpoint);

  // Fills `wanted.data` (CPU, contiguous, end - begin elements, dtype as stored) from the stored parts, bit for bit.
  // Throws Error(CorruptFile) if some element is stored nowhere, Error(Usage) for another dtype.
  void read(const StateItem& wanted) const;
  bool has(const std::string& state, const std::string& tensor) const { return parts_.contains({state, tensor}); }
  // Names of the states there are: "adam.m", "adam.v".
  std::vector<std::string> states() const;

 private:
  struct Part {
    int64_t begin = 0, end = 0;
    StoredTensor stored;
    std::string file;
  };
  std::string folder_;
  std::vector<SafetensorsSet> shards_;
  std::map<std::pair<std::string, std::string>, std::vector<Part>> parts_;  // by begin
};

}  // namespace ballast
