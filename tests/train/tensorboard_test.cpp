// Event files byte by byte: CRC-32C, TFRecord frames and Event messages.
#include "ballast/train/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "scratch_folder.h"

namespace ballast {
namespace {

TEST(TensorBoard, Crc32cOfKnownTexts) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);                   // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);         // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(TensorBoard, FrameHoldsLengthsAndMaskedChecksums) {
  const std::string frame = tfrecord("abc");
  ASSERT_EQ(frame.size(), 8 + 4 + 3 + 4u);
  uint64_t length;
  uint32_t length_crc, data_crc;
  std::memcpy(&length, frame.data(), 8);
  std::memcpy(&length_crc, frame.data() + 8, 4);
  std::memcpy(&data_crc, frame.data() + 15, 4);
  EXPECT_EQ(length, 3u);
  EXPECT_EQ(length_crc, masked_crc32c(frame.substr(0, 8)));
  EXPECT_EQ(data_crc, masked_crc32c("abc"));
  const uint32_t rotated = data_crc - 0xa282ead8u;
  EXPECT_EQ(((rotated >> 17) | (rotated << 15)), crc32c("abc"));
}

TEST(TensorBoard, EventBytes) {
  // wall_time 1.0 (field 1, fixed64), step 300 (field 2, varint), summary (field 5) { value (1) { tag (1) "a", simple_value (2) 0.5 } }
  const std::string expected("\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01"
                             "a\x15\x00\x00\x00\x3f",
                             24);
  EXPECT_EQ(event_message(1.0, 300, {{"a", 0.5}}), expected);
  EXPECT_EQ(event_message(1.0, 0, {}).substr(11), std::string("\x1a\x0d" "brain.Event:2"));
}

TEST(TensorBoard, TagsOfAStepAndOfAnEvaluation) {
  StepMetrics m;
  m.step = 4;
  m.loss = 2.5;
  m.bytes = {{"node", 100}, {"pair", 7}};
  const Scalars scalars = scalars_of(m);
  const auto value = [&](const std::string& tag) {
    const auto found = std::find_if(scalars.begin(), scalars.end(), [&](const auto& entry) { return entry.first == tag; });
    return found == scalars.end() ? -1.0 : found->second;
  };
  EXPECT_EQ(value("train/loss"), 2.5);
  EXPECT_EQ(value("comm/bytes_node"), 100);
  EXPECT_EQ(value("comm/bytes_pair"), 7);
  EXPECT_EQ(value("train/lr"), 0);
  EXPECT_EQ(value("perf/mfu"), 0);
  EXPECT_EQ(value("memory/peak_bytes"), 0);
  EvalMetrics eval;
  eval.eval_loss = 1.5;
  EXPECT_EQ(scalars_of(eval).front(), (std::pair<std::string, double>("eval/loss", 1.5)));
}

TEST(TensorBoard, AResumedRunLeavesOneFileWithEachStepOnce) {
  const ScratchFolder folder;
  StepMetrics first, second;
  first.step = 1;
  second.step = 2;
  std::filesystem::path old_file;
  {
    TensorBoardWriter writer(folder.path() / "tensorboard", {});
    writer.append(first);
    writer.append(second);
    old_file = writer.path();
  }
  TensorBoardWriter writer(folder.path() / "tensorboard", {first});
  writer.append(second);
  EXPECT_FALSE(std::filesystem::exists(old_file));
  std::ifstream in(writer.path(), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> records;
  for (size_t at = 0; at < text.size();) {
    uint64_t length;
    std::memcpy(&length, text.data() + at, 8);
    records.push_back(text.substr(at + 12, length));
    EXPECT_EQ(text.substr(at, length + 16), tfrecord(records.back()));
    at += length + 16;
  }
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1], event_message(0, 1, scalars_of(first)));
  EXPECT_EQ(records[2], event_message(0, 2, scalars_of(second)));
}

}  // namespace
}  // namespace ballast
