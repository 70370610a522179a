// Mistakes with files and folders: each message names the place and says what to do about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/apps/program.h"

namespace ballast::testing {
namespace {

using ::testing::HasSubstr;

TEST(Cures, WrongFilesAndFoldersSayWhatToDo) {
  const Workplace place;
  const std::string qwen = std::string(BALLAST_SOURCE_DIR) + "/tests/data/golden/qwen";
  place.write("d.jsonl", R"({"text": "a line of text"})" "\n");
  place.write("empty.jsonl", "");
  std::filesystem::create_directories(place.path() / "d");
  std::filesystem::create_directories(place.path() / "shards");
  for (const char* file : {"shards/b.bin", "shards/b.idx", "shards/a.bin", "shards/a.idx"}) place.write(file, "");
  place.write("c.yaml", "model: {preset: gpt2-tiny}\ndata: {train: [d.jsonl], sequence: {max_tokens: 32}}\nbatch: {tokens: 32}\ntrain: {steps: 1}\n");
  place.write("m.yaml", "model: {path: d}\ndata: {train: [d.jsonl]}\nbatch: {tokens: 32}\ntrain: {steps: 1}\n");
  struct Row {
    std::vector<std::string> arguments;
    int code;
    std::string where, cure;
  };
  const std::string tokenizer = "data.tokenizer=" + qwen;
  const std::vector<Row> rows{{{"validate", "c.yaml", tokenizer, "data.train=[empty.jsonl]"}, 3, "empty.jsonl", "make the file again"},
                              {{"validate", "c.yaml", tokenizer, "data.train=[shards]"}, 3, "shards\n", "name its files in data.train or data.eval: [shards/a.bin, shards/b.bin]"},
                              {{"validate", "c.yaml", tokenizer, "data.train=[d]"}, 3, "d\n", "check the path"},
                              {{"validate", "c.yaml", "data.tokenizer=d"}, 3, "d\n", "set data.tokenizer"},
                              {{"validate", "m.yaml", tokenizer}, 3, "d/config.json", "check the path"},
                              {{"train", "c.yaml", tokenizer, "run.dir=/proc/x/y"}, 8, "run.dir", "choose a run.dir"},
                              {{"report", "d"}, 3, "d\n", "check the path"},
                              {{"report", "nowhere"}, 3, "nowhere", "check the path"},
                              {{"inspect", "nowhere"}, 3, "nowhere", "check the path"},
                              {{"inspect", "d"}, 3, "d\n", "name one of the files"},
                              {{"export", "d", "--to", "x"}, 3, "d\n", "check the path"},
                              {{"generate", "d", "--prompt", "x"}, 3, "d\n", "check the path"}};
  for (const Row& row : rows) {
    const Printed printed = run_program(row.arguments, place.path());
    EXPECT_EQ(printed.code, row.code) << row.arguments.back() << "\n" << printed.errors;
    const size_t where = printed.errors.find("where:"), cure = printed.errors.find("cure:");
    ASSERT_NE(where, std::string::npos) << printed.errors;
    ASSERT_NE(cure, std::string::npos) << printed.errors;
    EXPECT_THAT(printed.errors.substr(where, cure - where), HasSubstr(row.where)) << printed.errors;
    EXPECT_THAT(printed.errors.substr(cure), HasSubstr(row.cure)) << printed.errors;
  }
}

}  // namespace
}  // namespace ballast::testing
