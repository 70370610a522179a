#include "ballast/graph/timeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ballast/base/check.h"

namespace ballast {

int32_t Timeline::lane(const std::string& name) {
  const auto found = std::find(lanes.begin(), lanes.end(), name);
  if (found != lanes.end()) return static_cast<int32_t>(found - lanes.begin());
  lanes.push_back(name);
  return static_cast<int32_t>(lanes.size() - 1);
}

void Timeline::merge(const Timeline& other) {
  std::vector<int32_t> index;
  for (const std::string& name : other.lanes) index.push_back(lane(name));
  records.reserve(records.size() + other.records.size());
  for (const OpRecord& record : other.records) {
    BALLAST_CHECK(record.lane >= 0 && static_cast<size_t>(record.lane) < index.size(), "lane {} of {}", record.lane,
                  index.size());
    records.push_back(record);
    records.back().lane = index[static_cast<size_t>(record.lane)];
  }
  dropped += other.dropped;
}

void Timeline::shift(double seconds) {
  for (OpRecord& record : records) record.start_s += seconds, record.end_s += seconds;
}

std::vector<LaneUse> lane_use(const Timeline& timeline) {
  std::map<std::pair<int32_t, int32_t>, LaneUse> uses;
  std::map<std::pair<int32_t, int32_t>, std::vector<std::pair<double, double>>> spans;
  if (timeline.records.empty()) return {};
  double first = timeline.records.front().start_s, last = timeline.records.front().end_s;
  std::set<int32_t> ranks;
  for (const OpRecord& record : timeline.records) {
    first = std::min(first, record.start_s);
    last = std::max(last, record.end_s);
    ranks.insert(record.rank);
    LaneUse& use = uses[{record.rank, record.lane}];
    use.bytes += record.bytes;
    use.flops += record.flops;
    ++use.operations;
    spans[{record.rank, record.lane}].emplace_back(record.start_s, record.end_s);
  }
  std::vector<LaneUse> result;
  for (const int32_t rank : ranks) {
    for (int32_t lane = 0; lane < static_cast<int32_t>(timeline.lanes.size()); ++lane) {
      LaneUse use = uses[{rank, lane}];
      use.rank = rank;
      use.lane = lane;
      use.window_s = last - first;
      auto& list = spans[{rank, lane}];
      std::sort(list.begin(), list.end());
      double reached = first;
      for (const auto& [start, end] : list) {
        use.busy_s += std::max(0.0, end - std::max(start, reached));
        reached = std::max(reached, end);
      }
      result.push_back(use);
    }
  }
  return result;
}

std::vector<KernelUse> kernel_use(const Timeline& timeline) {
  std::map<std::pair<std::string, std::string>, KernelUse> uses;
  for (const OpRecord& record : timeline.records) {
    KernelUse& use = uses[{record.kind, record.what}];
    use.kind = record.kind;
    use.what = record.what;
    use.total_s += record.end_s - record.start_s;
    use.bytes += record.bytes;
    use.flops += record.flops;
    ++use.operations;
  }
  std::vector<KernelUse> result;
  for (auto& [key, use] : uses) result.push_back(std::move(use));
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.total_s > b.total_s; });
  return result;
}

Timeline step_of(const Timeline& timeline, int64_t step) {
  Timeline result;
  result.lanes = timeline.lanes;
  for (const OpRecord& record : timeline.records)
    if (record.step == step) result.records.push_back(record);
  return result;
}

}  // namespace ballast
