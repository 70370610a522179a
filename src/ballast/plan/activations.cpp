// Shapes of what the segments of model/ put out and save, and a bound of their scratch. A change there is a change here:
// tests/model/segments_memory_test.cpp compares.
#include "ballast/plan/activations.h"

#include <algorithm>

#include "ballast/plan/attention_tiles.h"
#include "ballast/plan/head_chunk.h"

namespace ballast {

int64_t TensorSpec::bytes() const {
  int64_t product = size_of(dtype);
  for (int64_t size : shape) product *= size;
  return product;
}

std::vector<TensorSpec> outputs_of(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute) {
  switch (kind) {
    case SegmentKind::Embedding: case SegmentKind::Finish: return {{"x", {tokens, config.hidden}, compute}};
    case SegmentKind::Project:
      return {{"q", {tokens, config.query_width()}, compute},
              {"k", {tokens, config.kv_width()}, compute},
              {"v", {tokens, config.kv_width()}, compute}};
    case SegmentKind::Attend: return {{"o", {tokens, config.query_width()}, compute}, {"lse", {tokens, config.heads}, DType::Float32}};
    case SegmentKind::Head: return {{"loss", {tokens}, DType::Float32}};
  }
  return {};
}

std::vector<TensorSpec> saved_of(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute) {
  std::vector<TensorSpec> saved;
  const auto statistics = [&](const std::string& norm) {
    if (config.norm == NormKind::LayerNorm) saved.push_back({norm + ".mean", {tokens}, DType::Float32});
    saved.push_back({norm + ".rstd", {tokens}, DType::Float32});
  };
  if (kind == SegmentKind::Project) {
    statistics("norm1");
    if (config.qk_norm) {
      saved.push_back({"q.raw", {tokens, config.query_width()}, compute});
      saved.push_back({"k.raw", {tokens, config.kv_width()}, compute});
    }
  } else if (kind == SegmentKind::Finish) {
    saved.push_back({"x1", {tokens, config.hidden}, compute});
    statistics("norm2");
    if (config.gated) saved.push_back({"gate", {tokens, config.intermediate}, compute});
    saved.push_back({"up", {tokens, config.intermediate}, compute});
  }
  return saved;
}

int64_t scratch_bytes(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute, bool backward, int64_t threads) {
  if (tokens == 0) return 0;
  const int64_t hidden = config.hidden, query = config.query_width(), kv = config.kv_width(), inner = config.intermediate;
  const int64_t d = config.head_dim;
  // In floats. A model in bf16 is counted as on CPUs without bf16 units, where results of products are fp32 before they are rounded.
  const bool narrow = compute != DType::Float32;
  const auto widened = [&](int64_t elements) { return narrow ? elements : 0; };
  const int64_t slack = 4096 + 2 * tokens;  // statistics, small tensors, rounding to allocation units
  const int64_t dropped = config.dropout_residual > 0 || config.dropout_embedding > 0 ? tokens * hidden : 0;
  int64_t floats = 0;
  switch (kind) {
    case SegmentKind::Embedding: floats = backward ? dropped : 0; break;
    case SegmentKind::Project: {
      const int64_t rope = config.positions == PositionKind::Rope ? tokens * d : 0;
      const int64_t head_statistics = config.qk_norm ? tokens * config.heads : 0;
      const int64_t products = tokens * hidden * (backward ? 2 : 1) + (backward ? 0 : widened(tokens * std::max(query, kv)));
      floats = std::max({products, rope, head_statistics});
      break;
    }
    case SegmentKind::Attend: {
      const AttendUnit whole{{{0, tokens, 0}}, {{0, tokens, 0}}, 0};
      return attend_scratch_bytes(config, std::span(&whole, 1), compute, backward, threads);
    }
    case SegmentKind::Finish:
      if (backward) {
        const int64_t down = dropped + (config.gated ? 3 : 2) * tokens * inner;
        const int64_t up = 2 * tokens * hidden + (config.gated ? 2 : 1) * tokens * inner;
        const int64_t output = dropped + widened(tokens * query);
        floats = std::max({down, up, output});
      } else {
        floats = std::max({widened(tokens * hidden), tokens * hidden + widened(tokens * inner), tokens * inner + widened(tokens * hidden)});
      }
      break;
    case SegmentKind::Head: {
      // Not head_chunk_rows(tokens): fewer trained rows can make fewer, larger chunks.
      const int64_t rows = std::min(tokens, head_chunk_limit(config.vocab_size));
      const int64_t block = std::min(kHeadVocabBlock, config.vocab_size);
      floats = rows * config.vocab_size + 4 * rows * hidden + widened((block * rows + 1) / 2);
      break;
    }
  }
  return (floats + slack) * 4;
}

int64_t attend_scratch_bytes(const ModelConfig& config, std::span<const AttendUnit> units, DType compute, bool backward, int64_t threads) {
  if (units.empty()) return 0;
  const bool narrow = compute != DType::Float32;
  int64_t longest = 0;  // keys of one unit
  for (const AttendUnit& unit : units) {
    int64_t keys = 0;
    for (const RowSpan& span : unit.keys) keys += span.count;
    longest = std::max(longest, keys);
  }
  return threads * attend_room_floats(config.head_dim, backward, backward && narrow ? longest : 0) * int64_t{sizeof(float)};
}

}  // namespace ballast
