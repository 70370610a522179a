// Sizes by hand; that the segments write exactly these is tests/model/segments_memory_test.cpp.
#include "ballast/plan/activations.h"

#include <gtest/gtest.h>

#include "ballast/plan/head_chunk.h"

namespace ballast {
namespace {

int64_t bytes(const std::vector<TensorSpec>& specs) {
  int64_t sum = 0;
  for (const TensorSpec& spec : specs) sum += spec.bytes();
  return sum;
}

TEST(Activations, Gpt2ByHand) {
  const ModelConfig config = preset("gpt2-124m");
  EXPECT_EQ(bytes(outputs_of(SegmentKind::Embedding, config, 10, DType::BFloat16)), 10 * 768 * 2);
  EXPECT_EQ(bytes(outputs_of(SegmentKind::Project, config, 10, DType::BFloat16)), 3 * 10 * 768 * 2);
  EXPECT_EQ(bytes(outputs_of(SegmentKind::Attend, config, 10, DType::BFloat16)), 10 * 768 * 2 + 12 * 10 * 4);
  EXPECT_EQ(bytes(outputs_of(SegmentKind::Head, config, 10, DType::BFloat16)), 10 * 4);
  EXPECT_EQ(bytes(saved_of(SegmentKind::Project, config, 10, DType::Float32)), 2 * 10 * 4);
  EXPECT_EQ(bytes(saved_of(SegmentKind::Finish, config, 10, DType::Float32)), (10 * 768 + 2 * 10 + 10 * 3072) * 4);
  EXPECT_TRUE(saved_of(SegmentKind::Head, config, 10, DType::Float32).empty());
}

TEST(Activations, QkNormAndGateByHand) {
  ModelConfig config = preset("llama-110m");
  config.qk_norm = true;
  EXPECT_EQ(bytes(outputs_of(SegmentKind::Project, config, 10, DType::Float32)), 10 * (768 + 2 * 256) * 4);
  EXPECT_EQ(bytes(saved_of(SegmentKind::Project, config, 10, DType::BFloat16)), 10 * 4 + 10 * (768 + 256) * 2);
  EXPECT_EQ(bytes(saved_of(SegmentKind::Finish, config, 10, DType::BFloat16)), 10 * 4 + 10 * (768 + 2 * 2048) * 2);
}

TEST(Activations, NoTokensNoBytes) {
  for (SegmentKind kind : {SegmentKind::Embedding, SegmentKind::Project, SegmentKind::Attend, SegmentKind::Finish, SegmentKind::Head}) {
    EXPECT_EQ(bytes(outputs_of(kind, preset("gpt2-tiny"), 0, DType::Float32)), 0);
    EXPECT_EQ(bytes(saved_of(kind, preset("gpt2-tiny"), 0, DType::Float32)), 0);
    EXPECT_EQ(scratch_bytes(kind, preset("gpt2-tiny"), 0, DType::Float32, true), 0);
  }
}

TEST(HeadChunk, NeverExceedsItsBytes) {
  for (int64_t vocab : {int64_t{101}, int64_t{32000}, int64_t{50257}, int64_t{256000}, int64_t{5000000}}) {
    for (int64_t rows : {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, int64_t{333}, int64_t{334}, int64_t{512}, int64_t{666}, int64_t{100000}}) {
      const int64_t chunk = head_chunk_rows(rows, vocab);
      EXPECT_GE(chunk, 1);
      EXPECT_LE(chunk, rows);
      EXPECT_TRUE(chunk <= 16 || chunk * vocab * 4 <= kHeadChunkBytes) << rows << " " << vocab;
      EXPECT_LE(chunk, head_chunk_limit(vocab));
    }
  }
  EXPECT_EQ(head_chunk_rows(512, 50257), 256);
  EXPECT_EQ(head_chunk_rows(0, 50257), 0);
}

}  // namespace
}  // namespace ballast
