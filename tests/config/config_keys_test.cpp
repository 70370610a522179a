// No key of a configuration is dead: each is read into RunConfig, and what it was read into is used elsewhere in the source.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>

#include "ballast/base/files.h"
#include "ballast/config/run_config.h"

namespace ballast {
namespace {

const std::filesystem::path kSource = std::filesystem::path(BALLAST_SOURCE_DIR) / "src/ballast";

// Without comments and the text of literals: a key in a message is no use of it.
std::string code_of(const std::filesystem::path& file) {
  static const std::regex literal(R"re("(\\.|[^"\\\n])*")re"), comment(R"(//[^\n]*)");
  return std::regex_replace(std::regex_replace(read_file(file), literal, "\"\""), comment, "");
}

// The code that uses a key, where that is not its own path behind a dot ("config_.train.log_every").
const std::map<std::string, std::string> kUsedAs{
    {"topology", "config.topology"},
    {"placement", "config.placement"},
    {"data.fields.text", "data.fields"},
    {"data.fields.prompt", "data.fields"},
    {"data.fields.completion", "data.fields"},
    {"data.fields.messages", "data.fields"},
    {"data.fields.role", "data.fields"},
    {"data.fields.content", "data.fields"},
    {"data.template", "data.chat_template"},
    {"data.sequence.max_tokens", "data.max_tokens"},
    {"data.sequence.layout", "data.layout"},
    {"data.sequence.sharing", "options.sharing"},
    {"data.sequence.team", "options.team"},
    {"data.sequence.team_memory", "options.team_memory_bytes"},
    {"data.sequence.keys", "options.keys_across"},
    {"data.sequence.remap", "options.remap"},
    {"data.sequence.route", "options.route"},
    {"data.sequence.attention_tokens", "options.attention_tokens"},
    {"data.sequence.curves", "data.curves"},
    {"data.sequence.flops", "data.flops"},
    {"data.sequence.overlong", "data.overlong"},
    {"train.on_nonfinite", "train.skip_nonfinite"},
    {"train.timeout", "train.timeout_s"},
    {"optimizer.name", "spec.name"},
    {"optimizer.lr", "s.lr"},
    {"optimizer.betas", "spec.beta1"},
    {"optimizer.eps", "spec.eps"},
    {"optimizer.momentum", "spec.momentum"},
    {"optimizer.weight_decay", "spec.weight_decay"},
    {"optimizer.schedule.kind", "s.kind"},
    {"optimizer.schedule.min_lr", "s.min_lr"},
    {"optimizer.schedule.decay", "s.decay"},
};

TEST(ConfigKeys, EachIsReadAndUsed) {
  std::string reader, users;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource)) {
    const std::filesystem::path& file = entry.path();
    const std::string stem = file.stem().string();
    if (file.filename() == "run_config.cpp") reader = read_file(file);
    if ((file.extension() == ".cpp" || file.extension() == ".h") && stem != "run_config" && stem != "run_schema") users += code_of(file);
  }
  for (const ConfigKey& key : run_schema().keys()) {
    if (!key.path.starts_with("data.fields.")) {
      EXPECT_THAT(reader, testing::HasSubstr('"' + key.path + '"'));
    }
    const auto row = kUsedAs.find(key.path);
    const std::string use = row == kUsedAs.end() ? "\\." + key.path : "\\b" + row->second;
    EXPECT_TRUE(std::regex_search(users, std::regex(use + "\\b"))) << key.path << " is read, but nothing looks like /" << use << "/";
  }
  for (const auto& [key, use] : kUsedAs) EXPECT_NE(run_schema().find(key), nullptr) << key << " is no key";
}

}  // namespace
}  // namespace ballast
