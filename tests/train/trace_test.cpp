// The timeline: sums, its text form, the Chrome trace and the summary, with values computed by hand.
#include "ballast/train/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/base/error.h"

namespace ballast {
namespace {

Timeline two_ranks() {
  Timeline a, b;
  const int32_t compute = a.lane("compute");
  const int32_t link = a.lane("link node");
  a.records = {{1, 0, compute, 0, -1, 3, "compute", "forward", "forward block.0", 100.0, 100.4, 0, 1000},
               {1, 0, compute, 0, -1, 3, "compute", "backward", "backward block.0", 100.5, 101.0, 0, 2000},
               {1, 0, link, -1, -1, -1, "collective", "reduce", "reduce \"block.0\"\n", 100.25, 100.75, 64, 0}};
  b.lane("link node");  // another order of lanes
  b.lane("compute");
  b.records = {{1, 1, 1, 0, -1, 3, "compute", "forward", "forward block.0", 100.2, 101.0, 0, 1000},
               {2, 1, 0, -1, -1, -1, "collective", "gather", "gather block.0", 101.0, 102.0, 32, 0}};
  b.dropped = 2;
  a.merge(b);
  return a;
}

TEST(Timeline, MergeMatchesLanesByName) {
  const Timeline timeline = two_ranks();
  EXPECT_EQ(timeline.lanes, (std::vector<std::string>{"compute", "link node"}));
  EXPECT_EQ(timeline.records[3].lane, 0);
  EXPECT_EQ(timeline.records[4].lane, 1);
  EXPECT_EQ(timeline.dropped, 2);
}

TEST(Timeline, LaneUseIsTheUnionOfSpans) {
  Timeline timeline = two_ranks();
  timeline.records.push_back({1, 0, 0, 0, -1, 3, "compute", "codec", "inside", 100.1, 100.3, 0, 0});
  const auto uses = lane_use(timeline);
  ASSERT_EQ(uses.size(), 4u);
  EXPECT_EQ(uses[0].rank, 0);
  EXPECT_NEAR(uses[0].busy_s, 0.9, 1e-9);
  EXPECT_EQ(uses[0].flops, 3000);
  EXPECT_EQ(uses[0].operations, 3);
  EXPECT_NEAR(uses[1].busy_s, 0.5, 1e-9);
  EXPECT_EQ(uses[1].bytes, 64);
  EXPECT_NEAR(uses[2].busy_s, 0.8, 1e-9);
  EXPECT_NEAR(uses[3].share(), 0.5, 1e-9);
  for (const LaneUse& use : uses) EXPECT_NEAR(use.window_s, 2.0, 1e-9);
  EXPECT_TRUE(lane_use(Timeline{}).empty());
}

TEST(Timeline, KernelUseIsSortedByTime) {
  const auto uses = kernel_use(two_ranks());
  ASSERT_EQ(uses.size(), 4u);
  EXPECT_EQ(uses[0].what, "forward");
  EXPECT_NEAR(uses[0].total_s, 1.2, 1e-9);
  EXPECT_EQ(uses[0].operations, 2);
  EXPECT_EQ(uses[1].what, "gather");
}

TEST(Trace, TextFormLosesNothing) {
  Timeline timeline = two_ranks();
  timeline.records[0].start_s = 0.1 + 0.2;
  timeline.records[0].bytes = int64_t{1} << 62;
  EXPECT_EQ(decode_timeline(encode_timeline(timeline), "rank 1"), timeline);
}

TEST(Trace, TextsThatAreNoTimelineAreRefused) {
  const std::string good = encode_timeline(two_ranks());
  for (const std::string& text : {std::string(), std::string("{}"), good.substr(0, good.size() / 2), std::string("{\"timeline\":2}"),
                                  std::string(R"({"timeline":1,"lanes":[],"dropped":0,"records":[[1,0,0,0,0,0,"","","",0,0,0,0]]})"),
                                  std::string(R"({"timeline":1,"lanes":["a"],"dropped":0,"records":[[1,0]]})"),
                                  std::string(R"({"timeline":1,"lanes":"a","dropped":0,"records":[]})")})
    EXPECT_THROW(decode_timeline(text, "rank 1"), Error) << text.substr(0, 60);
}

TEST(Trace, ChromeTraceHasAProcessPerRankAndATrackPerLane) {
  const auto trace = nlohmann::json::parse(chrome_trace(two_ranks()));
  std::map<std::string, std::string> names;
  int spans = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string key = event["name"].get<std::string>() + " " + event["pid"].dump() + "/" + event["tid"].dump();
    if (event["ph"] == "M" && event["args"].contains("name")) names[key] = event["args"]["name"];
    if (event["ph"] == "X") ++spans;
  }
  EXPECT_EQ(spans, 5);
  EXPECT_EQ(names.at("process_name 0/0"), "rank 0");
  EXPECT_EQ(names.at("process_name 1/0"), "rank 1");
  EXPECT_EQ(names.at("thread_name 0/1"), "link node");
  EXPECT_EQ(names.at("thread_name 1/0"), "compute");
  EXPECT_EQ(trace["otherData"]["dropped_records"], 2);
  const auto is_reduce = [](const auto& event) { return event["args"].value("what", "") == "reduce"; };
  const auto reduce = std::find_if(trace["traceEvents"].begin(), trace["traceEvents"].end(), is_reduce);
  EXPECT_EQ((*reduce)["name"], "reduce \"block.0\"\n");
  EXPECT_NEAR((*reduce)["ts"].get<double>(), 250000, 0.002);  // microseconds from the first start
  EXPECT_NEAR((*reduce)["dur"].get<double>(), 500000, 0.002);
  EXPECT_EQ((*reduce)["args"]["bytes"], 64);
  EXPECT_EQ((*reduce)["cat"], "collective");
}

TEST(Trace, AnEmptyTimelineIsStillATrace) {
  EXPECT_TRUE(nlohmann::json::parse(chrome_trace({}))["traceEvents"].empty());
  EXPECT_EQ(timeline_summary({})["window_s"], 0.0);
}

TEST(Trace, SummaryDrawsTheLastStepOnly) {
  const auto summary = timeline_summary(two_ranks());
  EXPECT_EQ(summary["first_step"], 1);
  EXPECT_EQ(summary["last_step"], 2);
  EXPECT_EQ(summary["picture"]["step"], 2);
  ASSERT_EQ(summary["picture"]["tracks"].size(), 1u);
  EXPECT_EQ(summary["picture"]["tracks"][0]["spans"][0][2], "gather");
  EXPECT_NEAR(summary["use"][3]["share"].get<double>(), 0.5, 1e-9);
}

TEST(Trace, ThePictureMergesWhatCannotBeToldApart) {
  Timeline timeline;
  timeline.lane("compute");
  for (int i = 0; i < 100000; ++i)
    timeline.records.push_back({1, 0, 0, 0, -1, -1, "compute", i % 3 ? "forward" : "codec", "", i * 1e-5, i * 1e-5 + 9e-6, 0, 0});
  const auto tracks = timeline_summary(timeline)["picture"]["tracks"];
  ASSERT_EQ(tracks.size(), 1u);
  EXPECT_LE(tracks[0]["spans"].size(), 1700u);
  EXPECT_EQ(tracks[0]["spans"][0][2], "forward");
  EXPECT_NEAR(tracks[0]["spans"].back()[1].get<double>(), 99999e-5 + 9e-6, 1e-9);
}

}  // namespace
}  // namespace ballast
