#pragma once
// What sequences cost by their length: attention by visible pairs, linear modules by tokens, rings and moves by bytes and level. From rates or from
// measured points. Seconds of one rank, forward and backward together; what overlaps what is the layouts' question.
#include <cstdint>
#include <utility>
#include <vector>

#include "ballast/plan/model_config.h"
#include "ballast/plan/topology.h"

namespace ballast {

// Seconds over an amount: straight lines between points, never falling. Nothing costs nothing.
class Curve {
 public:
  Curve() = default;   // 0 everywhere
  // start_s + amount / per_second
  static Curve rate(double per_second, double start_s = 0);
  // Measured (amount, seconds). Below the first point towards where the line of the first two meets amount 0 (0 s or more),
  // beyond the last its seconds per amount.
  // Throws Error(Usage) for no points, amounts that do not grow, and values that are negative or not finite.
  explicit Curve(std::vector<std::pair<double, double>> points);
  double at(double amount) const;
  double least_rate(double amount) const;   // the least seconds per amount of anything up to this
  const std::vector<std::pair<double, double>>& points() const { return points_; }

 private:
  std::vector<std::pair<double, double>> points_;   // the first one at amount 0
  double slope_ = 0;                                // beyond the last
};

struct SequenceCost {
  struct WindowLayers {
    int64_t window = 0, layers = 1;   // layers that see this far back; 0: to the start
    bool operator==(const WindowLayers&) const = default;
  };
  std::vector<WindowLayers> layers = {{0, 1}};
  // Of one layer. The defaults are a block of hidden size 768 at 1 TFLOP/s: 12 h operations per pair, 72 h^2 per token.
  Curve attention = Curve::rate(1e12 / (12 * 768.0));        // by visible pairs
  Curve linear = Curve::rate(1e12 / (72 * 768.0 * 768.0));   // by tokens
  std::vector<Curve> links;       // by level: bytes that one unit below it sends; a level beyond the list is free
  // Of one token in one layer: its query, and its key and value, in the compute dtype; their sums in fp32; one fp32 for every head.
  int64_t query_bytes = 3072, key_bytes = 6144, query_sum_bytes = 3072, key_sum_bytes = 6144, head_bytes = 48;

  // What one moved token sends in one layer: query, key, value and output, forward and backward.
  int64_t moved_bytes() const { return 4 * query_bytes + 2 * key_bytes; }
  int64_t layer_count() const;
  double attention_s(int64_t length, int64_t members = 1) const;   // of one of the ranks that share it in equal parts, all layers
  // However many ranks share it: what they need together, at least.
  double least_attention_s(int64_t length) const;
  double linear_s(double tokens) const;                            // all layers
  double link_s(int level, double bytes) const;                    // one transfer
};

// From rates: `flops` of one rank, bandwidths and latencies of the levels (a level without a bandwidth is free), `element_bytes` of what travels.
SequenceCost sequence_cost(const ModelConfig& config, const Topology& topology, double flops, int64_t element_bytes);

}  // namespace ballast
