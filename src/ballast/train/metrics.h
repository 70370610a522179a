#pragma once
// metrics.jsonl, the truth about a run: one JSON object per line, per optimizer step or per evaluation. Everything else
// that shows figures (TensorBoard, report, progress) is made from it. docs/file-formats.md has every key.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ballast/base/output_file.h"

namespace ballast {

// One optimizer step. Figures are those of the step, over all ranks unless said otherwise.
struct StepMetrics {
  int64_t step = 0;                      // counts from 1
  double loss = 0;                       // nats per trained token; not finite is written as null
  double lr = 0;
  double grad_norm = 0;                  // before clipping
  int64_t tokens = 0;                    // real input tokens
  int64_t trained_tokens = 0;            // targets that count in the loss
  double tokens_per_s = 0;
  double time_s = 0;                     // seconds of this step
  double elapsed_s = 0;                  // seconds of training so far, over resumes
  int64_t memory_bytes = 0;              // peak of the rank that used most
  std::map<std::string, int64_t> bytes;  // payload sent over links of each level
  int64_t layout_bytes = 0;              // remapping and rings, apart
  double mfu = 0;                        // 0..1
  double communication_share = 0;        // of the step in which a rank waited for links alone, mean over ranks
  double data_wait_share = 0;
  double imbalance = 1;                  // predicted cost of the most loaded rank / mean (layout/report.h)
  double token_imbalance = 1;            // most token slots of a rank / mean
  double padding_share = 0;              // token slots that hold nothing
  int64_t micro_batches = 1;
  int64_t samples = 0;
  bool skipped = false;                  // the update was left out for a non-finite loss or gradient
  double wall_time = 0;                  // seconds since 1970

  bool operator==(const StepMetrics&) const = default;
};

// One evaluation after a step. Its line has `eval_loss` and never `loss`.
struct EvalMetrics {
  int64_t step = 0;  // 0: before the first
  double eval_loss = 0;
  int64_t tokens = 0, trained_tokens = 0;
  double tokens_per_s = 0, time_s = 0;
  bool best = false;  // the lowest so far
  double wall_time = 0;

  bool operator==(const EvalMetrics&) const = default;
};

using MetricsLine = std::variant<StepMetrics, EvalMetrics>;
int64_t step_of(const MetricsLine& line);

// One line without its newline, and back. Throws Error(CorruptFile) naming `file` and `line_number`.
std::string to_json_line(const MetricsLine& line);
MetricsLine parse_metrics_line(const std::string& text, const std::string& file, int64_t line_number);

struct MetricsFile {
  std::vector<MetricsLine> lines;
  std::string torn;  // what a crash left of a last line; empty if nothing
  std::vector<StepMetrics> steps() const;
  std::vector<EvalMetrics> evaluations() const;
};
// A last line without its newline is put into `torn`, never into `lines`; any other line that does not parse is an
// Error(CorruptFile) with its number. Throws Error(Data) if there is no such file.
MetricsFile read_metrics(const std::filesystem::path& path);

// Appends lines, each one whole and flushed to the system when append() returns.
class MetricsWriter {
 public:
  // A new run: throws Error(Usage) if the file holds anything.
  explicit MetricsWriter(const std::filesystem::path& path);
  // Goes on after `resumed_step`: later lines and a torn one are cut off first (written aside and renamed). A file that
  // is not there counts as empty. The lines that were kept are in kept(), for TensorBoard and the running figures.
  MetricsWriter(const std::filesystem::path& path, int64_t resumed_step);

  // Steps must ascend. Throws Error(Environment) with errno's text if the disk refuses.
  void append(const MetricsLine& line);
  const std::vector<MetricsLine>& kept() const { return kept_; }

 private:
  std::filesystem::path path_;
  std::vector<MetricsLine> kept_;
  int64_t last_step_ = 0;  // of training lines
  OutputFile file_;
};

}  // namespace ballast
