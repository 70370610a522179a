// Writing, choosing, keeping and loading checkpoints.
#include "ballast/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>

#include "ballast/base/error.h"
#include "ballast/checkpoint/load.h"
#include "checkpoint/checkpoint_fixture.h"
#include "scratch_folder.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, LayoutOnDisk) {
  const ScratchFolder run;
  const fs::path folder = write_checkpoint(run.path(), 50);
  EXPECT_EQ(folder, run.path() / "checkpoints" / "step-00000050");
  EXPECT_THAT(entries(folder), ElementsAre("manifest.json", "model", "state-00000-of-00003.safetensors", "state-00001-of-00003.safetensors",
                                           "state-00002-of-00003.safetensors", "state.json"));
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("step-00000050"));
}

TEST(Checkpoint, WhatWasWrittenComesBackBitForBit) {
  const ScratchFolder run;
  const CheckpointHandle handle = open_checkpoint(write_checkpoint(run.path(), 7));
  EXPECT_EQ(handle.step, 7);
  EXPECT_EQ(handle.state, state_at(7, 3));
  EXPECT_EQ(handle.manifest.files.size(), 6u);
  const StateReader reader(handle);
  EXPECT_THAT(reader.states(), ElementsAre("adam.m", "adam.v"));
  // Parts of the same cut, of another cut, and of a single element.
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 333}, {333, 667}, {667, 1001}, {0, 1001}, {300, 700}, {1000, 1001}, {5, 5}})
    for (const std::string state : {"adam.m", "adam.v"}) {
      at::Tensor data = at::zeros({end - begin}, at::kFloat);
      reader.read({state, "w", begin, end, data});
      for (int64_t i = begin; i < end; ++i) ASSERT_EQ(data.data_ptr<float>()[i - begin], value_of(state, 7, i)) << state << " " << i;
    }
}

TEST(Checkpoint, ReadingRefusesWhatIsNotThere) {
  const ScratchFolder run;
  const CheckpointHandle handle = open_checkpoint(write_checkpoint(run.path(), 7));
  const StateReader reader(handle);
  const auto kind_of = [&](const StateItem& item) {
    try {
      reader.read(item);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::Internal;
  };
  EXPECT_EQ(kind_of({"adam.m", "w", 990, 1002, at::zeros({12})}), ErrorKind::CorruptFile);
  EXPECT_EQ(kind_of({"adam.m", "other", 0, 1, at::zeros({1})}), ErrorKind::CorruptFile);
  EXPECT_EQ(kind_of({"lion.m", "w", 0, 1, at::zeros({1})}), ErrorKind::CorruptFile);
  EXPECT_EQ(kind_of({"adam.m", "w", 0, 1, at::zeros({1}, at::kBFloat16)}), ErrorKind::Usage);
}

TEST(Checkpoint, AnotherLayoutIsRefusedWithBothSides) {
  const ScratchFolder run;
  const CheckpointHandle handle = open_checkpoint(write_checkpoint(run.path(), 7));
  handle.require_layout(3, "1a2b3c");
  try {
    handle.require_layout(2, "1a2b3c");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_THAT(error.what(), HasSubstr("3 ranks"));
    EXPECT_THAT(error.what(), HasSubstr("2 ranks"));
    EXPECT_THAT(error.what(), HasSubstr("resharding is not there yet"));
  }
  EXPECT_THROW(handle.require_layout(3, "other"), Error);
}

TEST(Checkpoint, NewestValidIsTheHighestStep) {
  const ScratchFolder run;
  std::vector<BadCheckpoint> bad;
  EXPECT_FALSE(newest_valid(run.path(), bad));
  for (const int64_t step : {9, 100, 20}) write_checkpoint(run.path(), step);
  EXPECT_EQ(newest_valid(run.path(), bad)->step, 100);
  EXPECT_TRUE(bad.empty());
  EXPECT_THAT(checkpoint_steps(run.path()), ElementsAre(9, 20, 100));
}

TEST(Checkpoint, TheSameStepIsReplaced) {
  const ScratchFolder run;
  replace_content(write_checkpoint(run.path(), 5) / "state.json", "damaged");
  write_checkpoint(run.path(), 5);
  EXPECT_EQ(open_checkpoint(run.path() / "checkpoints/step-00000005").step, 5);
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("step-00000005"));
}

TEST(Checkpoint, WhatIsNotCommittedIsNoCheckpoint) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 5);
  {
    CheckpointWriter writer(run.path(), 6, 0, 1);
    writer.add({"adam.m", "w", 0, 4, at::zeros({4})});
    writer.finish_rank();
    std::vector<BadCheckpoint> bad;
    EXPECT_EQ(newest_valid(run.path(), bad)->step, 5);
    EXPECT_TRUE(bad.empty());
  }
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("step-00000005"));
}

TEST(Checkpoint, LeftoversAreRemovedAndNothingElse) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 5);
  const fs::path root = run.path() / "checkpoints";
  fs::create_directories(root / "step-00000006.tmp/model");
  fs::create_directories(root / "step-00000002.removed.tmp");
  fs::create_directories(root / "notes");
  EXPECT_EQ(remove_leftovers(run.path()).size(), 2u);
  EXPECT_THAT(entries(root), ElementsAre("notes", "step-00000005"));
  EXPECT_TRUE(remove_leftovers(run.path() / "absent").empty());
}

TEST(Checkpoint, AStaleTemporaryFolderOfTheSameStepIsNotMixedIn) {
  const ScratchFolder run;
  const fs::path stale = run.path() / "checkpoints/step-00000006.tmp";
  fs::create_directories(stale);
  replace_content(stale / "state-00007-of-00008.safetensors", "old");
  EXPECT_EQ(open_checkpoint(write_checkpoint(run.path(), 6)).manifest.files.size(), 6u);
}

TEST(Retention, KeepsTheNewestAndTheBest) {
  const ScratchFolder run;
  for (const int64_t step : {10, 20, 30, 40}) {
    write_checkpoint(run.path(), step);
    if (step == 20) keep_best(run.path(), 20);
  }
  const Pruned pruned = prune_checkpoints(run.path(), 2);
  EXPECT_EQ(pruned.removed.size(), 2u);
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("best-step-00000020", "step-00000030", "step-00000040"));
  std::vector<BadCheckpoint> bad;
  const auto best = best_checkpoint(run.path(), bad);
  ASSERT_TRUE(best);
  EXPECT_TRUE(best->best);
  EXPECT_EQ(best->state, state_at(20, 3));
  EXPECT_EQ(newest_valid(run.path(), bad)->step, 40);
}

TEST(Retention, ABetterOneReplacesTheBest) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 10);
  write_checkpoint(run.path(), 20);
  keep_best(run.path(), 20);
  keep_best(run.path(), 10);
  keep_best(run.path(), 10);
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("best-step-00000010", "step-00000010", "step-00000020"));
}

TEST(Retention, TheBestServesWhenAllOthersAreDamaged) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 10);
  keep_best(run.path(), 10);
  replace_content(write_checkpoint(run.path(), 20) / "manifest.json", "");
  replace_content(run.path() / "checkpoints/step-00000010/state.json", "");
  std::vector<BadCheckpoint> bad;
  const auto found = newest_valid(run.path(), bad);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->best);
  EXPECT_EQ(bad.size(), 2u);
}

TEST(Retention, TheOnlyValidOneStays) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 10);
  // Damage that sizes do not show: found only because pruning reads what it keeps.
  const fs::path newer = write_checkpoint(run.path(), 20);
  std::string text = content(newer / "model/model.safetensors");
  text[7] = static_cast<char>(text[7] ^ 1);
  replace_content(newer / "model/model.safetensors", text);
  const Pruned pruned = prune_checkpoints(run.path(), 1);
  EXPECT_TRUE(pruned.removed.empty());
  ASSERT_EQ(pruned.bad.size(), 1u);
  EXPECT_THAT(pruned.bad[0].why, HasSubstr("model.safetensors"));
  EXPECT_EQ(find_checkpoint(run.path()).step, 10);
}

TEST(Retention, DamagedOnesDoNotCountAsKept) {
  const ScratchFolder run;
  for (const int64_t step : {10, 20, 30}) write_checkpoint(run.path(), step);
  fs::remove(run.path() / "checkpoints/step-00000030/manifest.json");
  EXPECT_EQ(prune_checkpoints(run.path(), 1).removed.size(), 1u);
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("step-00000020", "step-00000030"));
}

TEST(Checkpoint, NamesOfFoldersThatAreNone) {
  const ScratchFolder run;
  const fs::path good = write_checkpoint(run.path(), 5);
  for (const char* name : {"step-5", "step-000000005", "step-", "step--0000005", "step-0000000a", "best-", "step-00000005x", "step-99999999999999999999"})
    fs::copy(good, run.path() / "checkpoints" / name, fs::copy_options::recursive);
  EXPECT_THAT(checkpoint_steps(run.path()), ElementsAre(5));
}

TEST(Checkpoint, FindSaysWhatIsWrongWithEach) {
  const ScratchFolder run;
  try {
    find_checkpoint(run.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
  }
  fs::remove(write_checkpoint(run.path(), 5) / "state.json");
  try {
    find_checkpoint(run.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CorruptFile);
    EXPECT_THAT(error.what(), HasSubstr("state.json"));
  }
}

TEST(Checkpoint, AFolderThatCannotBeMadeGivesErrnoText) {
  const ScratchFolder run;
  replace_content(run.path() / "checkpoints", "a file in the way");
  try {
    CheckpointWriter writer(run.path(), 1, 0, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_THAT(error.what(), HasSubstr("errno 20"));
  }
}

// The file size limit refuses writes as a full disk does, and needs no disk to be filled.
TEST(Checkpoint, AWriteThatTheSystemRefusesLeavesNothing) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1500, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  ErrorKind kind = ErrorKind::Internal;
  try {
    write_checkpoint(run.path(), 2);
  } catch (const Error& error) {
    message = error.what();
    kind = error.kind();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(kind, ErrorKind::Environment);
  EXPECT_THAT(message, HasSubstr("errno " + std::to_string(EFBIG)));
  EXPECT_THAT(entries(run.path() / "checkpoints"), ElementsAre("step-00000001"));
  EXPECT_EQ(find_checkpoint(run.path()).step, 1);
}

TEST(ItemName, RoundTripAndCorruptionTable) {
  const StateItem item = parse_item_name(item_name({"adam.m", "a/b@c.weight", 3, 9, {}}), "f");
  EXPECT_EQ(item.state, "adam.m");
  EXPECT_EQ(item.tensor, "a/b@c.weight");
  EXPECT_EQ(item.begin, 3);
  EXPECT_EQ(item.end, 9);
  for (const char* name : {"", "w", "/w@0:1", "m/w", "m/w@", "m/w@0", "m/w@0:", "m/w@:1", "m/w@2:1", "m/w@-1:2", "m/w@0:1x", "m@0/w:1",
                           "m/w@0:99999999999999999999", "m/w@ 0:1", "m/w@0:1:2"})
    EXPECT_THROW(parse_item_name(name, "f"), Error) << name;
}

}  // namespace
}  // namespace ballast
