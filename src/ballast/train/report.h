#pragma once
// RUN/report.html: one page that holds everything it shows, scripts included, made from the files of the run folder. It opens
// without a server or a network.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ballast/train/metrics.h"

namespace ballast {

// Series longer than this are shown as means of equal runs of steps; the page says of how many.
constexpr int64_t kReportPoints = 1500;

// What the page shows, from metrics.jsonl and, where they are there, timeline.json, config.yaml and environment.json.
// A missing part is left out; a damaged one is named in `notes`. Throws Error(Data) if there is no metrics.jsonl.
nlohmann::json report_data(const std::filesystem::path& run);
std::string report_html(const nlohmann::json& data);
// Writes the page to `output`, or to RUN/report.html if that is empty; returns where it stands.
std::filesystem::path write_report(const std::filesystem::path& run, const std::filesystem::path& output = {});

}  // namespace ballast
