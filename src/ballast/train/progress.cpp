#include "ballast/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "ballast/base/units.h"

namespace ballast {

namespace {

int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string cut_to(std::string text, int width) {
  while (columns_of(text) > width) {
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
    if (!text.empty()) text.pop_back();
  }
  return text;
}

double monotonic_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool is_terminal(const ProgressOptions& options) {
  if (options.terminal) return *options.terminal;
  const char* kind = std::getenv("TERM");
  return ::isatty(options.descriptor) == 1 && kind && std::string_view(kind) != "dumb";
}

}  // namespace

std::string fit_line(const std::vector<LinePart>& parts, int width) {
  std::vector<const LinePart*> kept;
  for (const LinePart& part : parts)
    if (!part.text.empty()) kept.push_back(&part);
  const auto total = [&] {
    int columns = kept.empty() ? 0 : static_cast<int>(kept.size() - 1) * 2;
    for (const LinePart* part : kept) columns += columns_of(part->text);
    return columns;
  };
  while (kept.size() > 1 && total() > width)
    kept.erase(std::max_element(kept.begin(), kept.end(), [](const auto* a, const auto* b) { return a->rank <= b->rank; }));
  std::string line;
  for (const LinePart* part : kept) line += (line.empty() ? "" : "  ") + part->text;
  return cut_to(line, width);
}

StatusLine::StatusLine(ProgressOptions options) : options_(std::move(options)), terminal_(is_terminal(options_)) {}

StatusLine::~StatusLine() { finish(); }

double StatusLine::now() const { return options_.now_s ? options_.now_s() : monotonic_s(); }

bool StatusLine::due() const {
  return now() - last_s_ >= (terminal_ ? options_.terminal_interval : options_.pipe_interval).count();
}

int StatusLine::columns() const {
  if (options_.width) return *options_.width;
  winsize size{};
  if (terminal_ && ::ioctl(options_.descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return terminal_ ? 80 : 1000;
}

// Progress is for people: a closed pipe or a full disk behind standard error must not stop a training run.
void StatusLine::put(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(options_.descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void StatusLine::show(const std::vector<LinePart>& parts) {
  last_s_ = now();
  // The last column stays free: some terminals wrap when it is written.
  shown_ = fit_line(parts, terminal_ ? std::max(1, columns() - 1) : columns());
  // Text first, then the rest of the old line is erased: the line is never blank in between.
  put(terminal_ ? "\r" + shown_ + "\x1b[K" : shown_ + "\n");
  open_ = terminal_;
}

void StatusLine::print(const std::string& text) {
  put(open_ ? "\r" + text + "\x1b[K\n" + shown_ : text + "\n");
}

void StatusLine::finish() {
  if (open_) put("\n");
  open_ = false;
}

ProgressLine::ProgressLine(int64_t total_steps, ProgressOptions options)
    : total_steps_(total_steps), pipe_steps_(options.pipe_steps), line_(std::move(options)) {}

std::vector<LinePart> ProgressLine::parts(const StepMetrics& m) const {
  const auto percent = [](double share) { return fmt::format("{:.1f}%", share * 100); };
  const std::string total = total_steps_ > 0 ? fmt::format("/{}", total_steps_) : "";
  const int width = static_cast<int>(std::to_string(std::max<int64_t>(total_steps_, 1)).size());
  std::vector<LinePart> parts{{fmt::format("step {:>{}}{}", m.step, width, total), 0},
                              {fmt::format("loss {:.4f}", m.loss), 1},
                              {fmt::format("lr {:.2e}", m.lr), 5},
                              {fmt::format("norm {:.3f}", m.grad_norm), 4},
                              {fmt::format("{} tok/s", format_count(std::llround(tokens_per_s_))), 2},
                              {fmt::format("mfu {}", percent(m.mfu)), 6},
                              {fmt::format("mem {}", format_bytes(m.memory_bytes)), 7},
                              {fmt::format("comm {}", percent(m.communication_share)), 8},
                              {fmt::format("data {}", percent(m.data_wait_share)), 9},
                              {fmt::format("imbal {:.2f}", m.imbalance), 10}};
  if (m.skipped) parts.push_back({"SKIPPED", 0});
  if (total_steps_ > m.step) parts.push_back({"eta " + format_time(static_cast<double>(total_steps_ - m.step) * step_s_), 3});
  return parts;
}

void ProgressLine::update(const StepMetrics& metrics) {
  const bool first = !last_;
  // The first step of a process is slow (page faults, choice of kernels): the averages start with the second.
  const double weight = seen_++ < 2 ? 1.0 : 0.1;
  step_s_ += weight * (metrics.time_s - step_s_);
  tokens_per_s_ += weight * (metrics.tokens_per_s - tokens_per_s_);
  last_ = metrics;
  const bool due = line_.terminal() ? line_.due() : metrics.step % pipe_steps_ == 0;
  last_shown_ = first || due || metrics.step == total_steps_ || metrics.skipped;
  if (last_shown_) line_.show(parts(metrics));
}

void ProgressLine::evaluation(const EvalMetrics& m) {
  line_.print(fmt::format("eval at step {}  loss {:.4f}  perplexity {:.2f}  {} tokens  {}{}", m.step, m.eval_loss, std::exp(m.eval_loss),
                          format_count(m.trained_tokens), format_time(m.time_s), m.best ? "  best so far" : ""));
}

void ProgressLine::finish() {
  if (last_ && !last_shown_) line_.show(parts(*last_));
  last_shown_ = true;
  line_.finish();
}

ProgressBar::ProgressBar(std::string label, int64_t total, ProgressUnit unit, ProgressOptions options)
    : label_(std::move(label)), total_(total), unit_(unit), line_(std::move(options)) {
  start_s_ = line_.now();
}

ProgressBar::~ProgressBar() { finish(); }

std::string ProgressBar::amount(int64_t value) const {
  switch (unit_) {
    case ProgressUnit::Bytes: return format_bytes(value);
    case ProgressUnit::Tokens: return format_count(value) + " tokens";
    case ProgressUnit::Items: return format_count(value);
  }
  return format_count(value);
}

std::vector<LinePart> ProgressBar::parts(double seconds, bool finished) const {
  std::vector<LinePart> parts{{label_, 0}};
  const double share = total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 0.0;
  if (total_ > 0 && line_.terminal() && !finished) {
    constexpr int kCells = 24;
    const int full = static_cast<int>(share * kCells);
    parts.push_back({"[" + std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(kCells - full), '.') + "]", 5});
  }
  if (total_ > 0 && !finished) parts.push_back({fmt::format("{:3.0f}%", std::floor(share * 100)), 1});
  const bool stopped = finished && total_ > 0 && done_ < total_;
  parts.push_back({total_ > 0 && (!finished || stopped) ? amount(done_) + " / " + amount(total_) : amount(done_), 2});
  // Of a moment no rate can be told.
  const double rate = seconds > 0.1 ? static_cast<double>(done_) / seconds : 0.0;
  if (rate > 0) {
    const bool bytes = unit_ == ProgressUnit::Bytes;
    parts.push_back({(bytes ? format_bytes(static_cast<int64_t>(rate)) : rate < 99.5 ? fmt::format("{:.3g}", rate) : format_count(std::llround(rate))) + "/s", 4});
  }
  if (finished) {
    parts.push_back({(stopped ? "stopped after " : "in ") + format_time(seconds), 3});
  } else if (total_ > 0 && rate > 0) {
    parts.push_back({"eta " + format_time(static_cast<double>(total_ - std::min(done_, total_)) / rate), 3});
  }
  return parts;
}

void ProgressBar::advance(int64_t amount) {
  const std::lock_guard lock(mutex_);
  done_ += amount;
  const double seconds = line_.now() - start_s_;
  // Nothing flashes up for work that is over at once.
  if (seconds > 0.2 && line_.due()) line_.show(parts(seconds, false));
}

void ProgressBar::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  line_.show(parts(line_.now() - start_s_, true));
  line_.finish();
}

}  // namespace ballast
