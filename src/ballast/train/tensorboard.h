#pragma once
// TensorBoard event files, made from the metrics: TFRecord frames around Event messages. Only scalars are written.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ballast/base/output_file.h"
#include "ballast/train/metrics.h"

namespace ballast {

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), and the masked form that TFRecord stores.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);
// One TFRecord: length (8 bytes), masked CRC of the length, data, masked CRC of the data; all little-endian.
std::string tfrecord(std::string_view data);

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value
// tensorflow.Event with a summary of simple values, or with only the file version if `scalars` is empty.
std::string event_message(double wall_time, int64_t step, const Scalars& scalars);
// train/loss, train/lr, train/grad_norm, perf/tokens_per_s, perf/mfu, memory/peak_bytes, comm/bytes_LEVEL, eval/loss, ...
Scalars scalars_of(const MetricsLine& line);

class TensorBoardWriter {
 public:
  // A new event file in `folder` (made if missing) that starts with `history`; event files of earlier processes of this
  // run are removed once it stands, so a resumed run shows each step once.
  TensorBoardWriter(const std::filesystem::path& folder, const std::vector<MetricsLine>& history);
  void append(const MetricsLine& line);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace ballast
