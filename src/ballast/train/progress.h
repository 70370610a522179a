#pragma once
// What a person watches: one line that updates itself on a terminal, whole lines now and then in a pipe or a log file.
// The line of a training run, and a bar for everything else that takes long (preparing data, loading, evaluating).
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/train/metrics.h"

namespace ballast {

// Where progress goes, and how it looks there. Time and width come from functions so that tests can set them.
struct ProgressOptions {
  int descriptor = 2;
  std::optional<bool> terminal;                                // unset: what isatty says (and TERM is not "dumb")
  std::optional<int> width;                                    // columns; unset: asked from the terminal at every update
  std::chrono::duration<double> terminal_interval{0.1};        // least time between two updates
  std::chrono::duration<double> pipe_interval{10.0};           // least time between two lines of a bar
  int64_t pipe_steps = 10;                                     // steps between two lines of a training run
  std::function<double()> now_s;                               // unset: a monotonic clock
};

// A part of a line, kept or left out as a whole. The most important ones (lowest `rank`) stay when the width is small.
struct LinePart {
  std::string text;
  int rank = 0;
};
// The parts in order, joined by two spaces, dropping the least important until it fits into `width` columns. If even
// the most important does not fit it is cut. Each byte of UTF-8 that starts a character counts as one column.
std::string fit_line(const std::vector<LinePart>& parts, int width);

// One line that is written over and over on a terminal, each time with a single write; whole lines elsewhere.
class StatusLine {
 public:
  explicit StatusLine(ProgressOptions options = {});
  ~StatusLine();  // leaves the cursor on a new line
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool terminal() const { return terminal_; }
  double now() const;
  // Whether enough time has passed since the last line shown.
  bool due() const;
  void show(const std::vector<LinePart>& parts);
  // A line of its own above the updating one: messages while it is up.
  void print(const std::string& text);
  // The last line stays and the next output starts below it.
  void finish();

 private:
  int columns() const;
  void put(std::string_view bytes);
  ProgressOptions options_;
  bool terminal_;
  bool open_ = false;        // an unfinished line is on the terminal
  std::string shown_;
  double last_s_ = -1e300;
};

// The line of a training run: step/total, loss, lr, gradient norm, tokens/s, MFU, memory, communication %, data wait %, imbalance, ETA.
// In a pipe: the first step, each pipe_steps-th one, those that were skipped, and the last.
class ProgressLine {
 public:
  // total_steps 0: not known beforehand (an epoch), no ETA.
  ProgressLine(int64_t total_steps, ProgressOptions options = {});
  void update(const StepMetrics& metrics);
  // An evaluation is a line of its own.
  void evaluation(const EvalMetrics& metrics);
  void message(const std::string& text) { line_.print(text); }
  void finish_line() { line_.finish(); }   // so that the log's next line stands below it
  void finish();

 private:
  std::vector<LinePart> parts(const StepMetrics& metrics) const;
  int64_t total_steps_, pipe_steps_;
  std::optional<StepMetrics> last_;
  bool last_shown_ = false;
  int64_t seen_ = 0;
  double step_s_ = 0;        // smoothed time of a step
  double tokens_per_s_ = 0;  // smoothed
  StatusLine line_;
};

enum class ProgressUnit { Items, Bytes, Tokens };

// "tokenize  [#####.....]   52%  1.2 GiB / 2.3 GiB  eta 14 s  85 MiB/s". advance() may be called from any thread.
class ProgressBar {
 public:
  // total 0: unknown, shows count and rate only.
  ProgressBar(std::string label, int64_t total, ProgressUnit unit, ProgressOptions options = {});
  ~ProgressBar();
  void advance(int64_t amount);
  // Shows the final figures; says "stopped" instead when the total was not reached. Called by the destructor too.
  void finish();

 private:
  std::vector<LinePart> parts(double seconds, bool done) const;
  std::string amount(int64_t value) const;
  std::string label_;
  int64_t total_, done_ = 0;
  ProgressUnit unit_;
  bool finished_ = false;
  double start_s_ = 0;
  std::mutex mutex_;
  StatusLine line_;
};

}  // namespace ballast
