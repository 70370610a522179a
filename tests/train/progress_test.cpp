// Progress: what reaches the terminal or the pipe, byte for byte, under a clock and a width that the test sets.
#include "ballast/train/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::Not;

// Collects what is written to a descriptor.
class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0) throw std::runtime_error("pipe");
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() { ::close(ends_[0]), ::close(ends_[1]); }
  int in() const { return ends_[1]; }
  std::string read() {
    char buffer[65536];
    std::string text;
    for (ssize_t got; (got = ::read(ends_[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
    return text;
  }

 private:
  int ends_[2];
};

ProgressOptions options_of(const Pipe& pipe, bool terminal, double* clock, int width = 200) {
  ProgressOptions options;
  options.descriptor = pipe.in();
  options.terminal = terminal;
  options.width = width;
  options.now_s = [clock] { return *clock; };
  return options;
}

StepMetrics metrics_at(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 3.25;
  m.lr = 6e-4;
  m.grad_norm = 1.5;
  m.time_s = 2.0;
  m.tokens_per_s = 12345;
  m.mfu = 0.4213;
  m.memory_bytes = int64_t{3} << 29;
  m.communication_share = 0.081;
  m.data_wait_share = 0.001;
  m.imbalance = 1.04;
  return m;
}

TEST(FitLine, DropsTheLeastImportantFirst) {
  const std::vector<LinePart> parts{{"aaa", 0}, {"bbb", 2}, {"ccc", 1}};
  EXPECT_EQ(fit_line(parts, 13), "aaa  bbb  ccc");
  EXPECT_EQ(fit_line(parts, 12), "aaa  ccc");
  EXPECT_EQ(fit_line(parts, 7), "aaa");
  EXPECT_EQ(fit_line(parts, 2), "aa");
  EXPECT_EQ(fit_line({{"\xc3\xa4\xc3\xb6\xc3\xbc", 0}}, 2), "\xc3\xa4\xc3\xb6");
  EXPECT_EQ(fit_line({}, 10), "");
}

TEST(ProgressLine, InAPipeALineEachSoManySteps) {
  Pipe pipe;
  double clock = 0;
  {
    ProgressOptions options = options_of(pipe, false, &clock);
    options.pipe_steps = 6;
    ProgressLine line(100, options);
    for (int64_t step = 1; step <= 12; ++step, clock += 2) line.update(metrics_at(step));
  }
  const std::string text = pipe.read();
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  for (const char* shown : {"step   1/100", "step   6/100", "step  12/100"}) EXPECT_THAT(text, HasSubstr(shown));
  EXPECT_THAT(text, HasSubstr("step   6/100  loss 3.2500  lr 6.00e-04  norm 1.500  12.3k tok/s  mfu 42.1%  mem 1.5 GiB  comm 8.1%  "
                              "data 0.1%  imbal 1.04  eta 3 min 08 s\n"));
}

TEST(ProgressLine, TheLastStepIsShownEvenBetweenIntervals) {
  Pipe pipe;
  double clock = 0;
  ProgressLine line(0, options_of(pipe, false, &clock));
  line.update(metrics_at(1));
  line.update(metrics_at(2));
  EXPECT_THAT(pipe.read(), Not(HasSubstr("step 2")));
  line.finish();
  EXPECT_THAT(pipe.read(), HasSubstr("step 2"));
  line.finish();
  EXPECT_EQ(pipe.read(), "");
}

TEST(ProgressLine, ATerminalLineIsOverwrittenWithinItsWidth) {
  Pipe pipe;
  double clock = 0;
  ProgressLine line(50, options_of(pipe, true, &clock, 40));
  line.update(metrics_at(1));
  EXPECT_EQ(pipe.read(), "\rstep  1/50  loss 3.2500  12.3k tok/s\x1b[K");
  line.update(metrics_at(2));
  EXPECT_EQ(pipe.read(), "");  // too early
  clock += 0.2;
  line.update(metrics_at(3));
  EXPECT_EQ(pipe.read(), "\rstep  3/50  loss 3.2500  12.3k tok/s\x1b[K");
  line.message("saved");
  EXPECT_EQ(pipe.read(), "\rsaved\x1b[K\n" "step  3/50  loss 3.2500  12.3k tok/s");
  line.finish();
  EXPECT_EQ(pipe.read(), "\n");
}

TEST(ProgressLine, ASkippedStepIsShownAtOnce) {
  Pipe pipe;
  double clock = 0;
  ProgressLine line(50, options_of(pipe, false, &clock));
  line.update(metrics_at(1));
  pipe.read();
  StepMetrics m = metrics_at(2);
  m.skipped = true;
  line.update(m);
  EXPECT_THAT(pipe.read(), HasSubstr("SKIPPED"));
}

TEST(ProgressBar, TerminalBarAndFinalFigures) {
  Pipe pipe;
  double clock = 0;
  ProgressBar bar("tokenize", 4 << 20, ProgressUnit::Bytes, options_of(pipe, true, &clock));
  bar.advance(1 << 20);
  EXPECT_EQ(pipe.read(), "");  // work that is over at once shows nothing on the way
  clock = 1;
  bar.advance(1 << 20);
  EXPECT_EQ(pipe.read(), "\rtokenize  [############............]   50%  2 MiB / 4 MiB  2 MiB/s  eta 1 s\x1b[K");
  clock = 2;
  bar.advance(2 << 20);
  pipe.read();
  bar.finish();
  EXPECT_EQ(pipe.read(), "\rtokenize  4 MiB  2 MiB/s  in 2 s\x1b[K\n");
  bar.finish();
  EXPECT_EQ(pipe.read(), "");
}

TEST(ProgressBar, AStoppedBarSaysSo) {
  Pipe pipe;
  double clock = 0;
  {
    ProgressBar bar("load", 10, ProgressUnit::Items, options_of(pipe, false, &clock));
    clock = 4;
    bar.advance(5);
    pipe.read();
  }
  EXPECT_EQ(pipe.read(), "load  5 / 10  1.25/s  stopped after 4 s\n");
}

TEST(ProgressBar, CountsFromManyThreads) {
  Pipe pipe;
  double clock = 1;
  ProgressBar bar("read", 0, ProgressUnit::Items, options_of(pipe, false, &clock));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&bar] {
      for (int j = 0; j < 1000; ++j) bar.advance(1);
    });
  for (std::thread& thread : threads) thread.join();
  bar.finish();
  EXPECT_THAT(pipe.read(), HasSubstr("read  4k"));
}

}  // namespace
}  // namespace ballast
