#include "ballast/engine/run.h"

#include <algorithm>

namespace ballast {

namespace {

using Intervals = std::vector<std::pair<double, double>>;

// Sorted, without overlaps.
Intervals merged(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals out;
  for (const auto& interval : intervals) {
    if (!out.empty() && interval.first <= out.back().second) {
      out.back().second = std::max(out.back().second, interval.second);
    } else {
      out.push_back(interval);
    }
  }
  return out;
}

double length(const Intervals& intervals) {
  double sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

}  // namespace

void summarize_times(GraphRun& run, double start_s, double end_s) {
  Intervals compute, links, all;
  for (size_t i = 0; i < run.times.size(); ++i) {
    (run.graph->ops[i].lane == kComputeLane ? compute : links).push_back(run.times[i]);
    all.push_back(run.times[i]);
  }
  run.occupancy.wall_s = end_s - start_s;
  run.occupancy.compute_s = length(merged(compute));
  run.occupancy.exposed_link_s = length(merged(all)) - run.occupancy.compute_s;
}

void append_records(const GraphRun& run, const Recipe& recipe, int64_t rank, const std::function<std::string(const Op&)>& name, Timeline& timeline) {
  std::vector<int32_t> lanes{timeline.lane("compute")};
  for (const Level& level : recipe.topology.levels()) lanes.push_back(timeline.lane("link " + level.name));
  for (size_t i = 0; i < run.times.size(); ++i) {
    const Op& op = run.graph->ops[i];
    OpRecord record;
    record.step = run.settings.step;
    record.rank = static_cast<int32_t>(rank);
    record.lane = lanes[static_cast<size_t>(op.lane)];
    record.micro_batch = op.micro_batch;
    record.slice = op.slice;
    record.segment = op.segment;
    record.kind = name_of(op.kind);
    record.what = std::string(op.what);
    record.name = name(op);
    record.start_s = run.times[i].first;
    record.end_s = run.times[i].second;
    record.bytes = op.bytes;
    record.flops = static_cast<int64_t>(op.flops);
    timeline.records.push_back(std::move(record));
  }
}

}  // namespace ballast
