// The corruption matrix: whatever happens to a file of the newest checkpoint, it is never taken as good, the reason names
// the file, and the checkpoint before it is chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ballast/base/error.h"
#include "checkpoint/checkpoint_fixture.h"
#include "scratch_folder.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::vector<std::string> kFiles = {"manifest.json",
                                         "state.json",
                                         "model/config.json",
                                         "model/model.safetensors",
                                         "state-00000-of-00003.safetensors",
                                         "state-00001-of-00003.safetensors",
                                         "state-00002-of-00003.safetensors"};

// Damages the newer of two checkpoints and expects the older one, with `named` in what is said about the newer.
void expect_refused(const std::string& what, const std::string& named, const std::function<void(const fs::path&)>& damage) {
  const ScratchFolder run;
  write_checkpoint(run.path(), 1);
  const fs::path newer = write_checkpoint(run.path(), 2);
  damage(newer);
  std::vector<BadCheckpoint> bad;
  const auto found = newest_valid(run.path(), bad);
  ASSERT_TRUE(found) << what;
  EXPECT_EQ(found->step, 1) << what;
  ASSERT_EQ(bad.size(), 1u) << what;
  EXPECT_EQ(bad[0].folder, newer) << what;
  EXPECT_THAT(bad[0].why, HasSubstr(named)) << what;
}

TEST(Corruption, TruncationOfEachFile) {
  for (const std::string& file : kFiles)
    for (const double share : {0.0, 0.3, 0.999})
      expect_refused(file + " truncated", file, [&](const fs::path& folder) {
        const auto size = static_cast<double>(fs::file_size(folder / file));
        fs::resize_file(folder / file, static_cast<uintmax_t>(size * share));
      });
}

TEST(Corruption, GrowthOfEachFile) {
  for (const std::string& file : kFiles)
    expect_refused(file + " grown", file, [&](const fs::path& folder) { std::ofstream(folder / file, std::ios::app) << '\0'; });
}

TEST(Corruption, OneFlippedBitInEachFile) {
  for (const std::string& file : kFiles)
    for (const double share : {0.0, 0.1, 0.5, 0.9, 0.9999})
      expect_refused(file + " flipped", file, [&](const fs::path& folder) {
        std::string text = content(folder / file);
        const auto at = static_cast<size_t>(static_cast<double>(text.size()) * share);
        text[at] = static_cast<char>(text[at] ^ (1 << (at % 8)));
        replace_content(folder / file, text);
      });
}

TEST(Corruption, EveryBitOfTheManifestCounts) {
  const ScratchFolder run;
  const fs::path file = write_checkpoint(run.path(), 2) / "manifest.json";
  const std::string good = content(file);
  for (size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string text = good;
      text[at] = static_cast<char>(text[at] ^ (1 << bit));
      EXPECT_THROW(parse_manifest(text, "manifest.json"), Error) << "byte " << at << " bit " << bit;
    }
  EXPECT_EQ(parse_manifest(good, "manifest.json").step, 2);
}

TEST(Corruption, GarbageAndMissing) {
  for (const std::string& file : kFiles) {
    expect_refused(file + " garbage", file, [&](const fs::path& folder) { replace_content(folder / file, "\xff\x00garbage"); });
    expect_refused(file + " missing", file, [&](const fs::path& folder) { fs::remove(folder / file); });
    expect_refused(file + " is a folder", file, [&](const fs::path& folder) {
      fs::remove(folder / file);
      fs::create_directory(folder / file);
    });
    expect_refused(file + " is a link into nothing", file, [&](const fs::path& folder) {
      fs::remove(folder / file);
      fs::create_symlink("nowhere", folder / file);
    });
  }
}

TEST(Corruption, ExtraAndSwappedShards) {
  expect_refused("extra", "state-00003-of-00003.safetensors", [](const fs::path& folder) {
    fs::copy_file(folder / "state-00002-of-00003.safetensors", folder / "state-00003-of-00003.safetensors");
  });
  expect_refused("swapped", "state-00001-of-00003.safetensors", [](const fs::path& folder) {
    const fs::path one = folder / "state-00001-of-00003.safetensors", two = folder / "state-00002-of-00003.safetensors";
    ASSERT_EQ(fs::file_size(one), fs::file_size(two));
    fs::rename(one, folder / "swap");
    fs::rename(two, one);
    fs::rename(folder / "swap", two);
  });
  expect_refused("of another step", "state-00001-of-00003.safetensors", [](const fs::path& folder) {
    const fs::path older = folder.parent_path() / "step-00000001";
    fs::remove(folder / "state-00001-of-00003.safetensors");
    fs::copy_file(older / "state-00001-of-00003.safetensors", folder / "state-00001-of-00003.safetensors");
  });
}

TEST(Corruption, AFolderUnderAnotherStepsName) {
  const ScratchFolder run;
  fs::rename(write_checkpoint(run.path(), 1), run.path() / "checkpoints/step-00000009");
  std::vector<BadCheckpoint> bad;
  EXPECT_FALSE(newest_valid(run.path(), bad));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_THAT(bad[0].why, HasSubstr("step 1"));
}

TEST(Corruption, ManifestsThatLie) {
  // Consistent in themselves, hash included, but no description of a checkpoint.
  const std::string hash(16, '0');
  const std::vector<std::string> paths{"../x", "/etc/passwd", "a/../b", "", ".", "a//b", "a/", std::string("a\0b", 3), "a\nb", "a\\b"};
  for (const std::string& path : paths) {
    Manifest manifest;
    manifest.step = 1;
    manifest.files = {{path, 1, hash}};
    EXPECT_THROW(parse_manifest(manifest_text(manifest), "m"), Error) << path;
  }
  Manifest twice;
  twice.files = {{"a", 1, hash}, {"a", 1, hash}};
  EXPECT_THROW(parse_manifest(manifest_text(twice), "m"), Error);
  Manifest negative;
  negative.files = {{"a", -1, hash}};
  EXPECT_THROW(parse_manifest(manifest_text(negative), "m"), Error);
  Manifest short_hash;
  short_hash.files = {{"a", 1, "12"}};
  EXPECT_THROW(parse_manifest(manifest_text(short_hash), "m"), Error);
  Manifest version;
  version.version = 2;
  try {
    parse_manifest(manifest_text(version), "m");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
  }
}

TEST(Corruption, StateTable) {
  const std::string good = state_text(state_at(3, 2));
  EXPECT_EQ(parse_state(good, "s"), state_at(3, 2));
  const nlohmann::json json = nlohmann::json::parse(good);
  for (const auto& [key, value] : json.items()) {
    auto without = json;
    without.erase(key);
    EXPECT_THROW(parse_state(without.dump(), "s"), Error) << "without " << key;
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"step", -1}, {"step", 1.5}, {"step", "1"}, {"ranks", 0}, {"seed", -0.5}, {"topology", 3}, {"format", "x"}, {"config_fingerprint", nullptr}}) {
    auto changed = json;
    changed[key] = value;
    EXPECT_THROW(parse_state(changed.dump(), "s"), Error) << key << " " << value;
  }
  auto without = json;
  without.erase("ranks");
  try {
    parse_state(without.dump(), "state.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "corrupt file: the state file of a checkpoint is damaged\n  where:    state.json\n  found:    no key 'ranks'");
  }
  try {
    parse_manifest(R"({"format": "ballast-checkpoint"})", "manifest.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "corrupt file: the manifest of a checkpoint is damaged\n  where:    manifest.json\n  found:    no key 'version'");
  }
  EXPECT_THROW(parse_state(std::string(1000000, '['), "s"), Error);
  EXPECT_THROW(parse_state("", "s"), Error);
}

}  // namespace
}  // namespace ballast
