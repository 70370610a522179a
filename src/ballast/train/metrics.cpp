#include "ballast/train/metrics.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/checkpoint/bounded_json.h"

namespace ballast {

namespace {

using Json = nlohmann::ordered_json;

// JSON knows no NaN or infinity: null stands for "not finite".
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Reads the keys of one line; remembers what it needs for messages.
class LineReader {
 public:
  LineReader(const Json& object, const std::string& file, int64_t line) : object_(object), file_(file), line_(line) {}

  void read(const char* key, double& value, bool required = false) const {
    const Json* found = find(key, required);
    if (!found) return;
    if (found->is_null()) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (found->is_number()) {
      value = found->get<double>();
    } else {
      fail(key, *found, "a number or null");
    }
  }
  void read(const char* key, int64_t& value, bool required = false) const {
    const Json* found = find(key, required);
    if (!found) return;
    value = integer(key, *found);
  }
  void read(const char* key, bool& value) const {
    const Json* found = find(key, false);
    if (!found) return;
    if (!found->is_boolean()) fail(key, *found, "true or false");
    value = found->get<bool>();
  }
  void read(const char* key, std::map<std::string, int64_t>& value) const {
    const Json* found = find(key, false);
    if (!found) return;
    if (!found->is_object()) fail(key, *found, "an object of level: bytes");
    for (const auto& [level, bytes] : found->items()) value[level] = integer(key, bytes);
  }

 private:
  const Json* find(const char* key, bool required) const {
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    if (required)
      throw Error(ErrorKind::CorruptFile, "metrics line lacks a key").at(file_, place()).expected(std::string("\"") + key + '"');
    return nullptr;
  }
  int64_t integer(const char* key, const Json& json) const {
    if (!json.is_number_integer()) fail(key, json, "an integer");
    if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(key, json, "an integer below 2^63");
    return json.get<int64_t>();
  }
  [[noreturn]] void fail(const char* key, const Json& json, const char* expected) const {
    throw Error(ErrorKind::CorruptFile, std::string("metrics line: ill-typed \"") + key + '"')
        .at(file_, place())
        .found(printable(json.dump(-1, ' ', true, Json::error_handler_t::replace)))
        .expected(expected);
  }
  std::string place() const { return "line " + std::to_string(line_); }

  const Json& object_;
  const std::string& file_;
  int64_t line_;
};

Json to_json(const StepMetrics& m) {
  Json bytes = Json::object();
  for (const auto& [level, count] : m.bytes) bytes[level] = count;
  return Json{{"step", m.step},
              {"loss", number(m.loss)},
              {"lr", number(m.lr)},
              {"grad_norm", number(m.grad_norm)},
              {"tokens", m.tokens},
              {"trained_tokens", m.trained_tokens},
              {"tokens_per_s", number(m.tokens_per_s)},
              {"time_s", number(m.time_s)},
              {"elapsed_s", number(m.elapsed_s)},
              {"memory_bytes", m.memory_bytes},
              {"bytes", bytes},
              {"layout_bytes", m.layout_bytes},
              {"mfu", number(m.mfu)},
              {"communication_share", number(m.communication_share)},
              {"data_wait_share", number(m.data_wait_share)},
              {"imbalance", number(m.imbalance)},
              {"token_imbalance", number(m.token_imbalance)},
              {"padding_share", number(m.padding_share)},
              {"micro_batches", m.micro_batches},
              {"samples", m.samples},
              {"skipped", m.skipped},
              {"wall_time", number(m.wall_time)}};
}

Json to_json(const EvalMetrics& m) {
  return Json{{"step", m.step},     {"eval_loss", number(m.eval_loss)}, {"tokens", m.tokens}, {"trained_tokens", m.trained_tokens},
              {"tokens_per_s", number(m.tokens_per_s)}, {"time_s", number(m.time_s)},     {"best", m.best},
              {"wall_time", number(m.wall_time)}};
}

}  // namespace

int64_t step_of(const MetricsLine& line) {
  return std::visit([](const auto& metrics) { return metrics.step; }, line);
}

std::string to_json_line(const MetricsLine& line) {
  return std::visit([](const auto& metrics) { return to_json(metrics).dump(-1, ' ', true, Json::error_handler_t::replace); },
                    line);
}

MetricsLine parse_metrics_line(const std::string& text, const std::string& file, int64_t line_number) {
  const Json object = parse_bounded_json<Json>(text);
  if (object.is_discarded() || !object.is_object())
    throw Error(ErrorKind::CorruptFile, "metrics line is not a JSON object")
        .at(file, "line " + std::to_string(line_number))
        .found(printable(text))
        .cure("delete the line, or the file if its figures are not needed");
  const LineReader reader(object, file, line_number);
  if (object.contains("eval_loss")) {
    EvalMetrics m;
    reader.read("step", m.step, true);
    reader.read("eval_loss", m.eval_loss, true);
    reader.read("tokens", m.tokens);
    reader.read("trained_tokens", m.trained_tokens);
    reader.read("tokens_per_s", m.tokens_per_s);
    reader.read("time_s", m.time_s);
    reader.read("best", m.best);
    reader.read("wall_time", m.wall_time);
    return m;
  }
  StepMetrics m;
  reader.read("step", m.step, true);
  reader.read("loss", m.loss, true);
  reader.read("lr", m.lr);
  reader.read("grad_norm", m.grad_norm);
  reader.read("tokens", m.tokens);
  reader.read("trained_tokens", m.trained_tokens);
  reader.read("tokens_per_s", m.tokens_per_s);
  reader.read("time_s", m.time_s);
  reader.read("elapsed_s", m.elapsed_s);
  reader.read("memory_bytes", m.memory_bytes);
  reader.read("bytes", m.bytes);
  reader.read("layout_bytes", m.layout_bytes);
  reader.read("mfu", m.mfu);
  reader.read("communication_share", m.communication_share);
  reader.read("data_wait_share", m.data_wait_share);
  reader.read("imbalance", m.imbalance);
  reader.read("token_imbalance", m.token_imbalance);
  reader.read("padding_share", m.padding_share);
  reader.read("micro_batches", m.micro_batches);
  reader.read("samples", m.samples);
  reader.read("skipped", m.skipped);
  reader.read("wall_time", m.wall_time);
  return m;
}

std::vector<StepMetrics> MetricsFile::steps() const {
  std::vector<StepMetrics> result;
  for (const MetricsLine& line : lines)
    if (const auto* step = std::get_if<StepMetrics>(&line)) result.push_back(*step);
  return result;
}

std::vector<EvalMetrics> MetricsFile::evaluations() const {
  std::vector<EvalMetrics> result;
  for (const MetricsLine& line : lines)
    if (const auto* eval = std::get_if<EvalMetrics>(&line)) result.push_back(*eval);
  return result;
}

namespace {

// No run writes more; keeps a file that is no metrics file from filling the memory.
constexpr int64_t kLargestMetricsFile = int64_t{8} << 30;

std::string text_of(const std::vector<MetricsLine>& lines) {
  std::string text;
  for (const MetricsLine& line : lines) text += to_json_line(line) + "\n";
  return text;
}

// The lines up to a step, with the file cut to them.
std::vector<MetricsLine> keep_until(const std::filesystem::path& path, int64_t resumed_step) {
  if (!std::filesystem::exists(path)) return {};
  MetricsFile file = read_metrics(path);
  const size_t before = file.lines.size();
  std::erase_if(file.lines, [&](const MetricsLine& line) { return step_of(line) > resumed_step; });
  if (file.lines.size() != before || !file.torn.empty()) write_aside(path, text_of(file.lines));
  return std::move(file.lines);
}

void refuse_content(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && std::filesystem::file_size(path, error) > 0)
    throw Error(ErrorKind::Usage, "the run folder holds the metrics of a run")
        .at(path.string())
        .cure("choose another run.dir, or go on with --resume");
}

}  // namespace

MetricsFile read_metrics(const std::filesystem::path& path) {
  const std::string text = read_file(path, {kLargestMetricsFile, ErrorKind::Data});
  MetricsFile file;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      file.torn = text.substr(begin);
      break;
    }
    ++number;
    file.lines.push_back(parse_metrics_line(text.substr(begin, end - begin), path.string(), number));
    begin = end + 1;
  }
  return file;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path)
    : path_(path), file_((refuse_content(path), path), OutputFile::Mode::Append) {}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, int64_t resumed_step)
    : path_(path), kept_(keep_until(path, resumed_step)), last_step_(0), file_(path, OutputFile::Mode::Append) {
  for (const MetricsLine& line : kept_)
    if (const auto* step = std::get_if<StepMetrics>(&line)) last_step_ = step->step;
}

void MetricsWriter::append(const MetricsLine& line) {
  if (const auto* step = std::get_if<StepMetrics>(&line)) {
    BALLAST_CHECK(step->step > last_step_, "step {} after step {}", step->step, last_step_);
    last_step_ = step->step;
  }
  file_.write(to_json_line(line) + "\n");
}

}  // namespace ballast
