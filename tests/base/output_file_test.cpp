// Growing files: what is written is there at once, and a full disk is a typed error with errno's text.
#include "ballast/base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "scratch_folder.h"

namespace ballast {
namespace {

TEST(OutputFile, AppendsAndIsReadableAtOnce) {
  const ScratchFolder folder;
  const auto path = folder.path() / "a";
  OutputFile(path, OutputFile::Mode::CreateNew).write("one ");
  OutputFile file(path, OutputFile::Mode::Append);
  file.write("two");
  EXPECT_EQ(read_file(path), "one two");
  EXPECT_EQ(file.bytes(), 3);
}

TEST(OutputFile, ErrorsNamePathErrnoAndCure) {
  const ScratchFolder folder;
  const auto path = folder.path() / "a";
  OutputFile file(path, OutputFile::Mode::CreateNew);
  const auto message_of = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Environment);
      return error.what();
    }
    return "";
  };
  const std::string taken = message_of([&] { OutputFile again(path, OutputFile::Mode::CreateNew); });
  EXPECT_THAT(taken, testing::HasSubstr(path.string()));
  EXPECT_THAT(taken, testing::HasSubstr("errno 17"));
  const std::string full = message_of([] { OutputFile("/dev/full", OutputFile::Mode::Append).write("x"); });
  EXPECT_THAT(full, testing::HasSubstr("No space left on device (errno 28)"));
  EXPECT_THAT(full, testing::HasSubstr("free space"));
}

}  // namespace
}  // namespace ballast
