// Writing aside, bounded reading, the folder lock: what stands in the folder afterwards, and what the errors say.
#include "ballast/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <vector>

namespace ballast {
namespace {

using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "ballast_files_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) out.push_back(entry.path().filename());
    return out;
  }
  std::filesystem::path folder_;
};

template <class Function>
Error error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::Internal, "nothing was thrown");
}

TEST_F(Files, WritesAreWholeAndLeaveNothingElse) {
  const auto path = folder_ / "a.bin";
  std::string large(1'000'003, 'x');
  large[999'999] = 'y';
  write_aside(path, "old");
  write_aside(path, [&](FileWriter& out) {
    out.write("begin");
    for (int i = 0; i < 100'000; ++i) out.write("abc");
    out.write(large);
    out.write("");
    out.write("end");
    EXPECT_EQ(out.written(), 5 + 300'000 + 1'000'003 + 3);
    EXPECT_EQ(read_file(path), "old");
  });
  const std::string text = read_file(path);
  ASSERT_EQ(text.size(), 5u + 300'000 + 1'000'003 + 3);
  EXPECT_EQ(text.substr(0, 8), "beginabc");
  EXPECT_EQ(text.substr(5 + 300'000), large + "end");
  EXPECT_THAT(names(), testing::ElementsAre("a.bin"));
}

TEST_F(Files, AFailedWriterLeavesTheOldFile) {
  const auto path = folder_ / "a.txt";
  write_aside(path, "old");
  EXPECT_THROW(write_aside(path,
                           [](FileWriter& out) {
                             out.write(std::string(1 << 20, 'n'));
                             throw std::runtime_error("stop");
                           }),
               std::runtime_error);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(names(), testing::ElementsAre("a.txt"));
}

TEST_F(Files, SystemErrorsCarryPathAndErrno) {
  const Error absent_folder = error_of([&] { write_aside(folder_ / "none" / "a", "x"); });
  EXPECT_EQ(absent_folder.kind(), ErrorKind::Environment);
  EXPECT_THAT(absent_folder.what(), HasSubstr("errno 2"));
  EXPECT_THAT(absent_folder.what(), HasSubstr("none"));
  std::filesystem::create_directory(folder_ / "dir");
  EXPECT_EQ(error_of([&] { write_aside(folder_ / "dir", "x"); }).kind(), ErrorKind::Environment);
  EXPECT_THAT(names(), testing::ElementsAre("dir"));
  EXPECT_THAT(error_of([&] {
                FileWriter out(-1, "gone.bin");
                out.write("x");
                out.flush();
              }).what(),
              HasSubstr("errno 9"));
  // A device that is always full.
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const Error no_space = error_of([&] {
    FileWriter out(full, "full.bin");
    out.write("x");
    out.flush();
  });
  ::close(full);
  EXPECT_THAT(no_space.what(), HasSubstr("errno 28"));
  EXPECT_THAT(no_space.what(), HasSubstr("free space on the disk"));
}

TEST_F(Files, AMissingFileIsGuessedUnlessItIsAPartOfASet) {
  write_aside(folder_ / "train.yaml", "");
  EXPECT_THAT(error_of([&] { read_file(folder_ / "tran.yaml"); }).what(), HasSubstr("did you mean 'train.yaml'?"));
  EXPECT_THAT(error_of([&] { read_file(folder_ / "x"); }).what(), HasSubstr("check the path"));
  EXPECT_THAT(error_of([&] { read_file(folder_ / "tran.yaml", ReadLimits{.missing = ErrorKind::CorruptFile}); }).what(),
              testing::Not(HasSubstr("did you mean")));
}

TEST_F(Files, ReadsAreBounded) {
  const auto path = folder_ / "a";
  write_aside(path, "12345");
  EXPECT_EQ(read_file(path, ReadLimits{.bytes = 5}), "12345");
  const Error large = error_of([&] { read_file(path, ReadLimits{.bytes = 4}); });
  EXPECT_EQ(large.kind(), ErrorKind::Data);
  EXPECT_THAT(large.what(), HasSubstr("at most 4 bytes"));
  write_aside(path, "");
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(error_of([&] { read_file(folder_ / "none"); }).kind(), ErrorKind::Data);
  EXPECT_EQ(error_of([&] { read_file(folder_ / "none", ReadLimits{.missing = ErrorKind::CorruptFile}); }).kind(),
            ErrorKind::CorruptFile);
  EXPECT_THAT(error_of([&] { read_file(folder_); }).what(), HasSubstr("a folder where a file is expected"));
  EXPECT_THAT(error_of([&] { read_file("/dev/zero", ReadLimits{.bytes = 10'000}); }).what(), HasSubstr("too large"));
  EXPECT_THAT(read_file("/proc/self/cmdline"), HasSubstr("test_base"));
}

TEST_F(Files, ManyThreadsWriteOneFile) {
  const auto path = folder_ / "a";
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) write_aside(path, std::string(1000, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_file(path);
  EXPECT_EQ(text, std::string(1000, text[0]));
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(Files, ALockedFolderIsRefusedUntilItsOwnerEnds) {
  std::optional<FolderLock> lock(std::in_place, folder_);
  const Error refused = error_of([&] { FolderLock second(folder_); });
  EXPECT_EQ(refused.kind(), ErrorKind::Usage);
  EXPECT_THAT(refused.what(), HasSubstr("process " + std::to_string(::getpid())));
  lock.reset();
  FolderLock again(folder_);
  FolderLock moved(std::move(again));
  EXPECT_EQ(error_of([&] { FolderLock third(folder_); }).kind(), ErrorKind::Usage);
}

TEST_F(Files, ADeadOwnersLockIsVoid) {
  const pid_t child = ::fork();
  if (child == 0) {
    FolderLock lock(folder_);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_NO_THROW(FolderLock lock(folder_));
}

TEST_F(Files, FoldersAreMadeWithTheirParents) {
  make_folders(folder_ / "a" / "b");
  make_folders(folder_ / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a" / "b"));
  write_aside(folder_ / "file", "x");
  EXPECT_EQ(error_of([&] { make_folders(folder_ / "file" / "b"); }).kind(), ErrorKind::Environment);
}

}  // namespace
}  // namespace ballast
