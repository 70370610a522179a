// metrics.jsonl: what is written comes back, resuming cuts it exactly, and damage is named by line.
#include "ballast/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "scratch_folder.h"

namespace ballast {
namespace {

StepMetrics step_metrics(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 10.0 / static_cast<double>(step) + 0.1;
  m.lr = 6e-4;
  m.grad_norm = 1.25;
  m.tokens = 4096;
  m.trained_tokens = 4000;
  m.tokens_per_s = 12345.678901234567;
  m.time_s = 0.3;
  m.elapsed_s = 0.3 * static_cast<double>(step);
  m.memory_bytes = int64_t{5} << 32;
  m.bytes = {{"pair", 1234567890123}, {"node", 77}};
  m.layout_bytes = 12;
  m.mfu = 0.41;
  m.communication_share = 0.1;
  m.data_wait_share = 0.002;
  m.imbalance = 1.03;
  m.padding_share = 0.01;
  m.micro_batches = 4;
  m.samples = 31;
  m.wall_time = 1.7e9;
  return m;
}

EvalMetrics eval_metrics(int64_t step, double loss) {
  EvalMetrics m;
  m.step = step;
  m.eval_loss = loss;
  m.tokens = 999;
  m.trained_tokens = 900;
  m.best = true;
  m.wall_time = 1.7e9;
  return m;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(Metrics, LinesComeBackBitForBit) {
  const StepMetrics step = step_metrics(7);
  EXPECT_EQ(std::get<StepMetrics>(parse_metrics_line(to_json_line(step), "f", 1)), step);
  const EvalMetrics eval = eval_metrics(7, 2.0 / 3.0);
  EXPECT_EQ(std::get<EvalMetrics>(parse_metrics_line(to_json_line(eval), "f", 1)), eval);
}

TEST(Metrics, KeysThatScriptsRelyOn) {
  const auto step = nlohmann::json::parse(to_json_line(step_metrics(3)));
  for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "time_s", "memory_bytes", "bytes"})
    EXPECT_TRUE(step.contains(key)) << key;
  EXPECT_EQ(step["bytes"]["pair"], 1234567890123);
  EXPECT_FALSE(step.contains("eval_loss"));
  const auto eval = nlohmann::json::parse(to_json_line(eval_metrics(3, 2.5)));
  EXPECT_EQ(eval["eval_loss"], 2.5);
  EXPECT_FALSE(eval.contains("loss"));
}

TEST(Metrics, NonFiniteIsNullAndComesBackAsNaN) {
  StepMetrics m = step_metrics(1);
  m.loss = std::numeric_limits<double>::infinity();
  m.grad_norm = std::nan("");
  m.skipped = true;
  const std::string text = to_json_line(m);
  EXPECT_TRUE(nlohmann::json::parse(text)["loss"].is_null());
  const auto back = std::get<StepMetrics>(parse_metrics_line(text, "f", 1));
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_TRUE(std::isnan(back.grad_norm));
  EXPECT_TRUE(back.skipped);
}

TEST(Metrics, ANewRunRefusesAFileWithContent) {
  const ScratchFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  MetricsWriter(path).append(step_metrics(1));
  try {
    MetricsWriter again(path);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
  }
  EXPECT_EQ(read_metrics(path).lines.size(), 1u);
}

TEST(Metrics, EachLineIsInTheFileWhenAppendReturns) {
  const ScratchFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  MetricsWriter writer(path);
  for (int64_t step = 1; step <= 3; ++step) {
    writer.append(step_metrics(step));
    EXPECT_EQ(read_metrics(path).steps().back(), step_metrics(step));
  }
}

TEST(Metrics, StepsThatDoNotAscendAreAFaultOfOurs) {
  const ScratchFolder folder;
  MetricsWriter writer(folder.path() / "metrics.jsonl");
  writer.append(step_metrics(2));
  writer.append(eval_metrics(2, 1));
  EXPECT_THROW(writer.append(step_metrics(2)), Error);
}

TEST(Metrics, ResumeCutsLaterLinesAndTheTornOne) {
  const ScratchFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  std::string kept, all;
  const auto line = [](const MetricsLine& metrics) { return to_json_line(metrics) + "\n"; };
  kept = line(eval_metrics(0, 9)) + line(step_metrics(1)) + line(step_metrics(2)) + line(eval_metrics(2, 3));
  all = kept + line(step_metrics(3)) + line(eval_metrics(3, 2)) + to_json_line(step_metrics(4)).substr(0, 30);
  put(path, all);
  const MetricsFile before = read_metrics(path);
  EXPECT_EQ(before.lines.size(), 6u);
  EXPECT_EQ(before.torn, to_json_line(step_metrics(4)).substr(0, 30));
  MetricsWriter writer(path, 2);
  EXPECT_EQ(content(path), kept);
  ASSERT_EQ(writer.kept().size(), 4u);
  EXPECT_EQ(std::get<EvalMetrics>(writer.kept()[3]).eval_loss, 3);
  writer.append(step_metrics(3));
  EXPECT_EQ(content(path), kept + line(step_metrics(3)));
}

TEST(Metrics, ATornLineThatIsWholeJsonIsStillTorn) {
  const ScratchFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  put(path, to_json_line(step_metrics(1)) + "\n" + to_json_line(step_metrics(2)));
  EXPECT_EQ(read_metrics(path).steps().size(), 1u);
  MetricsWriter writer(path, 2);
  EXPECT_EQ(content(path), to_json_line(step_metrics(1)) + "\n");
}

TEST(Metrics, ResumeWithoutAFileStartsOne) {
  const ScratchFolder folder;
  MetricsWriter writer(folder.path() / "metrics.jsonl", 5);
  writer.append(step_metrics(6));
  EXPECT_EQ(read_metrics(folder.path() / "metrics.jsonl").steps().front().step, 6);
}

TEST(Metrics, EveryTruncationGivesTheWholeLinesBeforeIt) {
  const ScratchFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const std::string text = to_json_line(step_metrics(1)) + "\n" + to_json_line(eval_metrics(1, 2)) + "\n";
  for (size_t length = 0; length <= text.size(); ++length) {
    put(path, text.substr(0, length));
    const auto whole = std::count(text.begin(), text.begin() + static_cast<int64_t>(length), '\n');
    EXPECT_EQ(static_cast<int64_t>(read_metrics(path).lines.size()), whole) << length;
  }
}

TEST(Metrics, CorruptionTable) {
  struct Row {
    const char* name;
    std::string line;
  };
  const std::string deep = "{\"step\":1,\"loss\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  for (const Row& row : std::vector<Row>{{"empty", ""},
                                         {"garbage", "\x01\xff"},
                                         {"array", "[1]"},
                                         {"no step", "{\"loss\":1}"},
                                         {"no loss", "{\"step\":1}"},
                                         {"text for loss", "{\"step\":1,\"loss\":\"x\"}"},
                                         {"fraction of a step", "{\"step\":1.5,\"loss\":1}"},
                                         {"step over 2^63", "{\"step\":18446744073709551615,\"loss\":1}"},
                                         {"bytes no object", "{\"step\":1,\"loss\":1,\"bytes\":[]}"},
                                         {"bytes of text", "{\"step\":1,\"loss\":1,\"bytes\":{\"node\":\"1\"}}"},
                                         {"skipped no bool", "{\"step\":1,\"loss\":1,\"skipped\":0}"},
                                         {"deep", deep},
                                         {"two objects", "{\"step\":1,\"loss\":1}{}"}}) {
    const ScratchFolder folder;
    const auto path = folder.path() / "metrics.jsonl";
    put(path, to_json_line(step_metrics(1)) + "\n" + row.line + "\n" + to_json_line(step_metrics(3)) + "\n");
    try {
      read_metrics(path);
      ADD_FAILURE() << row.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << row.name;
      EXPECT_NE(error.place().find("line 2"), std::string::npos) << row.name << ": " << error.what();
    }
  }
}

TEST(Metrics, AMissingFileIsADataError) {
  try {
    read_metrics("no/such/metrics.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
  }
}

}  // namespace
}  // namespace ballast
