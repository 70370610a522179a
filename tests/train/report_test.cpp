// The report: figures, thinning of long runs, what is missing or damaged, and a page that nothing in the data can break.
#include "ballast/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "scratch_folder.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::Not;

StepMetrics metrics_at(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = static_cast<double>(step);
  m.tokens = 100;
  m.tokens_per_s = static_cast<double>(step % 5);
  m.memory_bytes = 1000 + step;
  m.bytes = {{"node", 10}, {"pair", step}};
  m.elapsed_s = static_cast<double>(step) * 2;
  return m;
}

void write_metrics(const std::filesystem::path& run, int64_t steps) {
  MetricsWriter writer(run / "metrics.jsonl");
  for (int64_t step = 1; step <= steps; ++step) {
    writer.append(metrics_at(step));
    if (step % 10 == 0) {
      EvalMetrics eval;
      eval.step = step;
      // With train.eval_batches the last evaluation is of all batches; step 20's was the best by those that all have.
      eval.eval_loss = step == 20 ? 0.5 : step == steps ? 0.4 : 2.0;
      eval.best = step <= 20;
      writer.append(eval);
    }
  }
}

void put(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(Report, Figures) {
  const ScratchFolder run;
  write_metrics(run.path(), 40);
  const auto data = report_data(run.path());
  EXPECT_EQ(data["final"]["steps"], 40);
  EXPECT_EQ(data["final"]["loss"], 40.0);
  EXPECT_EQ(data["final"]["tokens"], 4000);
  EXPECT_EQ(data["final"]["tokens_per_s"], 2.0);
  EXPECT_EQ(data["final"]["memory_bytes"], 1040);
  EXPECT_EQ(data["final"]["best_eval_loss"], 0.5);
  EXPECT_EQ(data["final"]["best_eval_step"], 20);
  EXPECT_NEAR(data["final"]["perplexity"].get<double>(), std::exp(0.5), 1e-12);
  EXPECT_EQ(data["steps"]["bytes_total"]["node"], 400);
  EXPECT_EQ(data["steps"]["bytes_total"]["pair"], 820);
  EXPECT_EQ(data["steps"]["loss"].size(), 40u);
  EXPECT_EQ(data["eval"].size(), 4u);
  EXPECT_TRUE(data["notes"].empty());
}

TEST(Report, LongRunsAreMeansOfEqualRunsOfSteps) {
  const ScratchFolder run;
  write_metrics(run.path(), 4001);
  const auto steps = report_data(run.path())["steps"];
  EXPECT_EQ(steps["per_point"], 3);
  ASSERT_EQ(steps["loss"].size(), 1334u);
  EXPECT_EQ(steps["loss"][0], 2.0);
  EXPECT_EQ(steps["step"][0], 3);
  EXPECT_EQ(steps["loss"][1333], 4000.5);  // the last run is shorter
  EXPECT_EQ(steps["step"][1333], 4001);
}

TEST(Report, NonFiniteFiguresAreNull) {
  const ScratchFolder run;
  StepMetrics m = metrics_at(1);
  m.loss = std::nan("");
  MetricsWriter(run.path() / "metrics.jsonl").append(m);
  const auto data = report_data(run.path());
  EXPECT_TRUE(data["steps"]["loss"][0].is_null());
  EXPECT_TRUE(data["final"]["loss"].is_null());
}

TEST(Report, AnEmptyRunStillMakesAPage) {
  const ScratchFolder run;
  put(run.path() / "metrics.jsonl", "");
  EXPECT_EQ(write_report(run.path()), run.path() / "report.html");
  EXPECT_GT(std::filesystem::file_size(run.path() / "report.html"), 100000u);
}

TEST(Report, WithoutMetricsThereIsNone) {
  const ScratchFolder run;
  EXPECT_THROW(write_report(run.path()), Error);
  EXPECT_FALSE(std::filesystem::exists(run.path() / "report.html"));
}

TEST(Report, DamagedPartsAreNamed) {
  const ScratchFolder run;
  write_metrics(run.path(), 3);
  std::ofstream(run.path() / "metrics.jsonl", std::ios::app) << "{\"st";
  put(run.path() / "timeline.json", std::string(100000, '['));
  put(run.path() / "environment.json", "nothing");
  const auto data = report_data(run.path());
  EXPECT_FALSE(data.contains("timeline"));
  EXPECT_FALSE(data.contains("environment"));
  const std::string notes = data["notes"].dump();
  for (const char* file : {"metrics.jsonl", "timeline.json", "environment.json"}) EXPECT_THAT(notes, HasSubstr(file));
}

TEST(Report, DataCannotEndItsScriptElement) {
  const ScratchFolder run;
  write_metrics(run.path(), 3);
  put(run.path() / "config.yaml", "a: </script><script>alert(1)</script> \xff\n");
  const std::string html = report_html(report_data(run.path()));
  EXPECT_THAT(html, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(html, HasSubstr("alert(1)\\u003c/script>"));
}

TEST(Report, ThePageNamesNothingOutsideItself) {
  const ScratchFolder run;
  write_metrics(run.path(), 3);
  const std::string html = report_html(report_data(run.path()));
  for (const char* mark : {"/*DATA*/", "/*CHART_LIBRARY*/", "/*PAGE_SCRIPT*/", "/*PAGE_STYLE*/", " src=", "<link", "@import", "url("})
    EXPECT_THAT(html, Not(HasSubstr(mark)));
}

}  // namespace
}  // namespace ballast
