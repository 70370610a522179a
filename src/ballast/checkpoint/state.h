#pragma once
// What a checkpoint knows beside tensors: where the run was, and with which configuration and layout.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace ballast {

struct CheckpointState {
  int64_t step = 0;               // optimizer steps done
  int64_t ranks = 1;
  uint64_t seed = 0;              // random numbers are a function of (seed, step, sample, position)
  std::string config_fingerprint; // of the keys that may not change on resume
  std::string layout_fingerprint; // of topology, placement and parameter groups: how tensors were cut
  std::string topology;           // for people
  nlohmann::json cursor;          // of the data source
  nlohmann::json schedule;        // of the optimizer: what is not a function of the step
  nlohmann::json metrics;         // the last figures: loss, best eval loss, ...
  bool operator==(const CheckpointState&) const = default;
};

std::string state_text(const CheckpointState& state);
// Throws Error(CorruptFile) naming `file` and the key.
CheckpointState parse_state(const std::string& text, const std::string& file);

}  // namespace ballast
