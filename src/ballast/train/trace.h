#pragma once
// A timeline as files: the Chrome/Perfetto trace (one process per rank, a track per lane) and the summary that the report
// shows; and as text, for gathering the timelines of all ranks on rank 0.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ballast/graph/timeline.h"

namespace ballast {

// A timeline as one text and back, losing nothing. Throws Error(PeerLost) for text that is no timeline (another version).
std::string encode_timeline(const Timeline& timeline);
Timeline decode_timeline(const std::string& text, const std::string& from);

// The trace in the Trace Event Format; times in microseconds from the first start. Opens in ui.perfetto.dev and chrome://tracing.
std::string chrome_trace(const Timeline& timeline);
// Writes `chrome_trace` aside and renames it.
void write_chrome_trace(const std::filesystem::path& path, const Timeline& timeline);

// RUN/timeline.json: lane use, kernel sums, and the busy spans of the last traced step, merged to a resolution fit for a picture.
nlohmann::json timeline_summary(const Timeline& timeline);
void write_timeline_summary(const std::filesystem::path& path, const Timeline& timeline);

}  // namespace ballast
