// Log lines: who speaks at which level, how lines look, and that the file gets them too.
#include "ballast/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::Not;

class Log : public testing::Test {
 protected:
  void TearDown() override {
    set_thread_rank(-1);
    set_log_level(LogLevel::Info);
    close_log_file();
  }
  template <class Function>
  std::string said_by(Function function) {
    testing::internal::CaptureStderr();
    function();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, LinesCarryTheRank) {
  EXPECT_EQ(said_by([] { log_info("{} tokens", 7); }), "7 tokens\n");
  set_thread_rank(0);
  EXPECT_EQ(said_by([] { log_warning("slow"); }), "[rank 0] warning: slow\n");
  set_thread_rank(3);
  EXPECT_EQ(said_by([] { log_error("peer lost: rank 1"); }), "[rank 3] peer lost: rank 1\n");
}

TEST_F(Log, OtherRanksInformAtDebugOnly) {
  set_thread_rank(1);
  EXPECT_EQ(said_by([] { log_info("hello"); }), "");
  set_log_level(LogLevel::Debug);
  EXPECT_EQ(said_by([] { log_info("hello"); }), "[rank 1] hello\n");
}

TEST_F(Log, LevelsFilter) {
  set_log_level(LogLevel::Warning);
  EXPECT_EQ(said_by([] { log_info("a"), log_debug("b"), log_warning("c"); }), "warning: c\n");
  set_log_level(LogLevel::Off);
  EXPECT_EQ(said_by([] { log_error("d"); }), "");
  EXPECT_EQ(parse_log_level("debug"), LogLevel::Debug);
  try {
    parse_log_level("warnings");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'warning'?"));
  }
}

TEST_F(Log, ControlCharactersAreShown) {
  EXPECT_EQ(said_by([] { log_info("{}", std::string("a\x1b[31m\r") + '\0'); }), "a\\x1b[31m\\x0d\\x00\n");
}

TEST_F(Log, TheFileGetsTheSameLinesWithTime) {
  const std::string path = testing::TempDir() + "ballast_log_test.txt";
  std::filesystem::remove(path);
  said_by([&] {
    log_info("early");
    open_log_file(path);
    log_info("first");
    log_debug("hidden");
    close_log_file();
    log_info("after");
    open_log_file(path);
    log_warning("appended");
  });
  const std::string text = read_file(path);
  EXPECT_THAT(text, HasSubstr(" info first\n"));
  EXPECT_THAT(text, HasSubstr(" warning warning: appended\n"));
  EXPECT_THAT(text, Not(HasSubstr("hidden")));
  // What is said while no file is open goes into the next one, once.
  for (const std::string line : {" info early\n", " info after\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
    EXPECT_EQ(text.find(line), text.rfind(line));
  }
  std::filesystem::remove(path);
  try {
    open_log_file(testing::TempDir());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
  }
}

}  // namespace
}  // namespace ballast
