#include "ballast/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/checkpoint/bounded_json.h"
#include "ballast/train/median.h"
#include "ballast/train/report_assets.h"

namespace ballast {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Means over equal runs of steps; values that are not finite do not count.
Json series(const std::vector<StepMetrics>& steps, int64_t per_point, const std::function<double(const StepMetrics&)>& value) {
  Json points = Json::array();
  for (size_t begin = 0; begin < steps.size(); begin += static_cast<size_t>(per_point)) {
    const size_t end = std::min(steps.size(), begin + static_cast<size_t>(per_point));
    double sum = 0;
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      const double v = value(steps[i]);
      if (std::isfinite(v)) sum += v, ++count;
    }
    points.push_back(count > 0 ? number(sum / static_cast<double>(count)) : Json(nullptr));
  }
  return points;
}

std::vector<double> finite(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  return values;
}

Json steps_json(const std::vector<StepMetrics>& steps) {
  const int64_t count = static_cast<int64_t>(steps.size());
  const int64_t per_point = std::max<int64_t>(1, (count + kReportPoints - 1) / kReportPoints);
  Json step = Json::array();
  for (int64_t i = 0; i < count; i += per_point) step.push_back(steps[static_cast<size_t>(std::min(count, i + per_point) - 1)].step);
  Json result{{"per_point", per_point}, {"step", step}};
  const auto add = [&](const char* name, const std::function<double(const StepMetrics&)>& value) { result[name] = series(steps, per_point, value); };
  add("loss", [](const auto& m) { return m.loss; });
  add("lr", [](const auto& m) { return m.lr; });
  add("grad_norm", [](const auto& m) { return m.grad_norm; });
  add("tokens_per_s", [](const auto& m) { return m.tokens_per_s; });
  add("time_s", [](const auto& m) { return m.time_s; });
  add("memory_bytes", [](const auto& m) { return static_cast<double>(m.memory_bytes); });
  add("mfu", [](const auto& m) { return m.mfu; });
  add("communication_share", [](const auto& m) { return m.communication_share; });
  add("data_wait_share", [](const auto& m) { return m.data_wait_share; });
  add("padding_share", [](const auto& m) { return m.padding_share; });
  add("imbalance", [](const auto& m) { return m.imbalance; });
  std::map<std::string, int64_t> levels;
  for (const StepMetrics& m : steps)
    for (const auto& [level, bytes] : m.bytes) levels[level] += bytes;
  result["bytes"] = Json::object();
  for (const auto& [level, total] : levels) {
    const auto of_level = [name = level](const StepMetrics& m) {
      const auto found = m.bytes.find(name);
      return found == m.bytes.end() ? 0.0 : static_cast<double>(found->second);
    };
    result["bytes"][level] = series(steps, per_point, of_level);
  }
  result["bytes_total"] = levels;
  return result;
}

Json final_figures(const std::vector<StepMetrics>& steps, const std::vector<EvalMetrics>& evaluations) {
  Json figures = Json::object();
  if (!steps.empty()) {
    int64_t tokens = 0, memory = 0, skipped = 0;
    std::vector<double> rate, mfu;
    for (const StepMetrics& m : steps) {
      tokens += m.tokens;
      memory = std::max(memory, m.memory_bytes);
      skipped += m.skipped;
      rate.push_back(m.tokens_per_s);
      mfu.push_back(m.mfu);
    }
    figures = {{"steps", steps.back().step}, {"loss", number(steps.back().loss)}, {"tokens", tokens}, {"memory_bytes", memory}, {"skipped", skipped},
               {"tokens_per_s", number(median(finite(rate)))}, {"mfu", number(median(finite(mfu)))}, {"elapsed_s", number(steps.back().elapsed_s)}};
  }
  const EvalMetrics* best = nullptr;
  for (const EvalMetrics& eval : evaluations)
    if (eval.best) best = &eval;   // the last that was the lowest so far, by the figures that choose the best checkpoint
  if (best) {
    figures["best_eval_loss"] = number(best->eval_loss);
    figures["best_eval_step"] = best->step;
    figures["perplexity"] = number(std::exp(best->eval_loss));
  }
  return figures;
}

}  // namespace

Json report_data(const fs::path& run) {
  std::error_code ignored;
  if (!fs::exists(run / "metrics.jsonl", ignored))
    throw Error(ErrorKind::Data, fs::exists(run, ignored) ? "the folder is no run: it has no metrics.jsonl"
                                                          : "there is no such run folder")
        .at(run.string())
        .expected("the run.dir of a training")
        .cure("check the path; a run has metrics as soon as train has started");
  const MetricsFile metrics = read_metrics(run / "metrics.jsonl");
  const std::vector<StepMetrics> steps = metrics.steps();
  const std::vector<EvalMetrics> evaluations = metrics.evaluations();
  Json notes = Json::array();
  if (!metrics.torn.empty()) notes.push_back("metrics.jsonl ends within a line: the run was stopped while it wrote.");
  fs::path named = run;
  if (!named.has_filename()) named = named.parent_path();
  Json data{{"name", named.filename().string()}, {"steps", steps_json(steps)}, {"final", final_figures(steps, evaluations)}};
  Json eval = Json::array();
  for (const EvalMetrics& e : evaluations) eval.push_back({e.step, number(e.eval_loss)});
  data["eval"] = eval;
  const auto optional_text = [&](const char* file) -> std::string {
    std::error_code error;
    if (!fs::exists(run / file, error)) return "";
    try {
      return read_file(run / file);
    } catch (const Error& failure) {
      notes.push_back(std::string(file) + " could not be read: " + failure.what());
      return "";
    }
  };
  data["config"] = optional_text("config.yaml");
  for (const auto& [key, file] : {std::pair{"environment", "environment.json"}, {"timeline", "timeline.json"}}) {
    const std::string text = optional_text(file);
    if (text.empty()) continue;
    const Json json = parse_bounded_json(text);
    if (json.is_object()) {
      data[key] = json;
    } else {
      notes.push_back(std::string(file) + " is damaged and left out.");
    }
  }
  data["notes"] = notes;
  return data;
}

std::string report_html(const Json& data) {
  // Nothing in the data may end the script element that holds it.
  std::string text = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  std::string html(report_template());
  for (const auto& [mark, content] : {std::pair<std::string, std::string_view>{"/*CHART_LIBRARY*/", report_chart_library()},
                                      {"/*PAGE_SCRIPT*/", report_script()},
                                      {"/*PAGE_STYLE*/", report_style()},
                                      {"/*DATA*/", safe}}) {
    const size_t at = html.find(mark);
    html.replace(at, mark.size(), content);
  }
  return html;
}

fs::path write_report(const fs::path& run, const fs::path& output) {
  const fs::path path = output.empty() ? run / "report.html" : output;
  write_aside(path, report_html(report_data(run)));
  return path;
}

}  // namespace ballast
