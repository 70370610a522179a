#pragma once
// What happened when, one record per operation: written by the engine from a run and by the simulator from a prediction,
// so that the two are compared operation by operation. Pure data; files and pictures of it are train/'s.
#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

struct OpRecord {
  int64_t step = 0;
  int32_t rank = 0;
  int32_t lane = 0;          // index into Timeline::lanes
  int32_t micro_batch = -1;  // -1: of the whole step
  int32_t slice = -1;
  int32_t segment = -1;      // index into ModelShape::segments; -1: of no segment
  std::string kind;          // "compute", "collective", "exchange", "copy", "codec", "update", "host"
  std::string what;          // the registered kernel: "forward", "gather", "reduce", ...
  std::string name;          // for people: "forward block.3.finish"
  double start_s = 0, end_s = 0;  // monotonic, one origin for all ranks
  int64_t bytes = 0;         // payload sent by this rank
  int64_t flops = 0;

  bool operator==(const OpRecord&) const = default;
};

struct Timeline {
  std::vector<std::string> lanes;  // names in the order of display: "compute", "link pair", "link node", "host", ...
  std::vector<OpRecord> records;   // in any order
  int64_t dropped = 0;             // records that did not fit where they were collected: counted, never silent

  // Index of a lane by name, added if it is new.
  int32_t lane(const std::string& name);
  // Adds the records of another timeline (of another rank or step); its lanes are matched by name.
  void merge(const Timeline& other);
  // Moves all times by `seconds`: aligns a rank's clock with the others'.
  void shift(double seconds);

  bool operator==(const Timeline&) const = default;
};

// How one rank used one lane within the window from the first start to the last end of all records.
struct LaneUse {
  int32_t rank = 0, lane = 0;
  double busy_s = 0;    // length of the union of its records
  double window_s = 0;  // the same for every rank and lane
  int64_t bytes = 0, flops = 0, operations = 0;
  double share() const { return window_s > 0 ? busy_s / window_s : 0.0; }
};
// Ordered by rank, then lane; lanes without a record of a rank that has others are listed with zeros.
std::vector<LaneUse> lane_use(const Timeline& timeline);

// The sums over all ranks of operations with one `what`, longest first.
struct KernelUse {
  std::string kind, what;
  double total_s = 0;
  int64_t bytes = 0, flops = 0, operations = 0;
};
std::vector<KernelUse> kernel_use(const Timeline& timeline);

// The records of one step.
Timeline step_of(const Timeline& timeline, int64_t step);

}  // namespace ballast
