#include "ballast/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/checkpoint/bounded_json.h"

namespace ballast {

namespace {

using Json = nlohmann::json;
constexpr int kTimelineVersion = 1;
// Spans of one rank and lane nearer than the window over this are drawn as one.
constexpr double kPictureResolution = 800;

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace); }

double first_start(const Timeline& timeline) {
  double first = timeline.records.empty() ? 0.0 : timeline.records.front().start_s;
  for (const OpRecord& record : timeline.records) first = std::min(first, record.start_s);
  return first;
}

struct Span {
  double start_s, end_s;
  std::map<std::string, double> seconds;  // by `what`
};

// Busy spans of each (rank, lane), merged where they could not be told apart in a picture.
Json spans_of(const Timeline& timeline) {
  std::vector<const OpRecord*> order;
  for (const OpRecord& record : timeline.records) order.push_back(&record);
  std::sort(order.begin(), order.end(), [](const OpRecord* a, const OpRecord* b) {
    return std::tie(a->rank, a->lane, a->start_s) < std::tie(b->rank, b->lane, b->start_s);
  });
  double first = first_start(timeline), last = first;
  for (const OpRecord& record : timeline.records) last = std::max(last, record.end_s);
  const double pixel = (last - first) / kPictureResolution;
  std::map<std::pair<int32_t, int32_t>, std::vector<Span>> lanes;
  for (const OpRecord* record : order) {
    std::vector<Span>& spans = lanes[{record->rank, record->lane}];
    const bool merge = !spans.empty() && record->start_s - spans.back().end_s < pixel &&
                       record->end_s - spans.back().start_s < pixel;
    if (!merge) spans.push_back({record->start_s, record->end_s, {}});
    spans.back().end_s = std::max(spans.back().end_s, record->end_s);
    spans.back().seconds[record->what] += record->end_s - record->start_s;
  }
  Json result = Json::array();
  for (const auto& [key, spans] : lanes) {
    Json list = Json::array();
    for (const Span& span : spans) {
      const auto longest = std::max_element(span.seconds.begin(), span.seconds.end(),
                                            [](const auto& a, const auto& b) { return a.second < b.second; });
      list.push_back({span.start_s - first, span.end_s - first, longest->first});
    }
    result.push_back({{"rank", key.first}, {"lane", key.second}, {"spans", list}});
  }
  return result;
}

}  // namespace

std::string encode_timeline(const Timeline& timeline) {
  Json records = Json::array();
  for (const OpRecord& r : timeline.records)
    records.push_back({r.step, r.rank, r.lane, r.micro_batch, r.slice, r.segment, r.kind, r.what, r.name, r.start_s, r.end_s,
                       r.bytes, r.flops});
  return Json{{"timeline", kTimelineVersion}, {"lanes", timeline.lanes}, {"dropped", timeline.dropped}, {"records", records}}
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

Timeline decode_timeline(const std::string& text, const std::string& from) {
  const auto refuse = [&](const std::string& found) {
    return Error(ErrorKind::PeerLost, "a rank sent no timeline that this version reads")
        .at(from)
        .found(found)
        .expected(fmt::format("timeline version {}", kTimelineVersion))
        .cure("run the same binary on every rank");
  };
  const Json json = parse_bounded_json(text);
  if (!json.is_object() || json.value("timeline", Json()) != kTimelineVersion) throw refuse(printable(text));
  try {
    Timeline timeline;
    timeline.lanes = json.at("lanes").get<std::vector<std::string>>();
    timeline.dropped = json.at("dropped").get<int64_t>();
    for (const Json& r : json.at("records")) {
      OpRecord record;
      size_t i = 0;
      record.step = r.at(i++).get<int64_t>();
      for (int32_t* field : {&record.rank, &record.lane, &record.micro_batch, &record.slice, &record.segment})
        *field = r.at(i++).get<int32_t>();
      for (std::string* field : {&record.kind, &record.what, &record.name}) *field = r.at(i++).get<std::string>();
      for (double* field : {&record.start_s, &record.end_s}) *field = r.at(i++).get<double>();
      for (int64_t* field : {&record.bytes, &record.flops}) *field = r.at(i++).get<int64_t>();
      if (record.lane < 0 || static_cast<size_t>(record.lane) >= timeline.lanes.size())
        throw refuse(fmt::format("lane {} of {}", record.lane, timeline.lanes.size()));
      timeline.records.push_back(std::move(record));
    }
    return timeline;
  } catch (const Json::exception& error) {
    throw refuse(error.what());
  }
}

std::string chrome_trace(const Timeline& timeline) {
  const double origin = first_start(timeline);
  std::set<std::pair<int32_t, int32_t>> tracks;
  std::set<int32_t> ranks;
  for (const OpRecord& record : timeline.records) {
    tracks.emplace(record.rank, record.lane);
    ranks.insert(record.rank);
  }
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_records\":" + std::to_string(timeline.dropped) +
                    "},\"traceEvents\":[";
  const char* separator = "\n";
  const auto metadata = [&](const char* name, int32_t rank, int32_t lane, const std::string& args) {
    out += fmt::format("{}{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{{}}}}}", separator, name, rank, lane, args);
    separator = ",\n";
  };
  for (const int32_t rank : ranks) {
    metadata("process_name", rank, 0, fmt::format("\"name\":\"rank {}\"", rank));
    metadata("process_sort_index", rank, 0, fmt::format("\"sort_index\":{}", rank));
  }
  for (const auto& [rank, lane] : tracks) {
    metadata("thread_name", rank, lane, "\"name\":" + quoted(timeline.lanes.at(static_cast<size_t>(lane))));
    metadata("thread_sort_index", rank, lane, fmt::format("\"sort_index\":{}", lane));
  }
  for (const OpRecord& r : timeline.records) {
    out += fmt::format(
        "{}{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{\"step\":{},"
        "\"what\":{}",
        separator, quoted(r.name.empty() ? r.what : r.name), quoted(r.kind), r.rank, r.lane, (r.start_s - origin) * 1e6,
        (r.end_s - r.start_s) * 1e6, r.step, quoted(r.what));
    separator = ",\n";
    if (r.micro_batch >= 0) out += fmt::format(",\"micro_batch\":{}", r.micro_batch);
    if (r.slice >= 0) out += fmt::format(",\"slice\":{}", r.slice);
    if (r.segment >= 0) out += fmt::format(",\"segment\":{}", r.segment);
    if (r.bytes > 0) out += fmt::format(",\"bytes\":{}", r.bytes);
    if (r.flops > 0) out += fmt::format(",\"flops\":{}", r.flops);
    out += "}}";
  }
  out += "\n]}\n";
  return out;
}

void write_chrome_trace(const std::filesystem::path& path, const Timeline& timeline) {
  write_aside(path, chrome_trace(timeline));
}

Json timeline_summary(const Timeline& timeline) {
  Json lanes = Json::array(), kernels = Json::array();
  for (const LaneUse& use : lane_use(timeline))
    lanes.push_back({{"rank", use.rank}, {"lane", use.lane}, {"busy_s", use.busy_s}, {"share", use.share()}, {"bytes", use.bytes},
                     {"flops", use.flops}, {"operations", use.operations}});
  for (const KernelUse& use : kernel_use(timeline))
    kernels.push_back({{"kind", use.kind}, {"what", use.what}, {"total_s", use.total_s}, {"bytes", use.bytes}, {"flops", use.flops},
                       {"operations", use.operations}});
  int64_t first_step = 0, last_step = 0;
  if (!timeline.records.empty()) {
    const auto [low, high] = std::minmax_element(timeline.records.begin(), timeline.records.end(),
                                                 [](const auto& a, const auto& b) { return a.step < b.step; });
    first_step = low->step;
    last_step = high->step;
  }
  const auto uses = lane_use(timeline);
  const Timeline last = step_of(timeline, last_step);
  const auto last_uses = lane_use(last);
  return Json{{"version", kTimelineVersion},
              {"first_step", first_step},
              {"last_step", last_step},
              {"window_s", uses.empty() ? 0.0 : uses.front().window_s},
              {"dropped_records", timeline.dropped},
              {"lanes", timeline.lanes},
              {"use", lanes},
              {"kernels", kernels},
              {"picture", {{"step", last_step}, {"window_s", last_uses.empty() ? 0.0 : last_uses.front().window_s}, {"tracks", spans_of(last)}}}};
}

void write_timeline_summary(const std::filesystem::path& path, const Timeline& timeline) {
  write_aside(path, timeline_summary(timeline).dump(1) + "\n");
}

}  // namespace ballast
