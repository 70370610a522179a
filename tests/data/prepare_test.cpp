// Preparing: the same bytes whatever the threads, one maker among processes, nothing half-written, errors that name the
// record.
#include "ballast/data/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "ballast/base/error.h"
#include "ballast/data/token_store.h"
#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::ByteTokenizer;
using testing::read_all;
using testing::TemporaryFolder;

std::string many_records(int n) {
  std::string content;
  for (int i = 0; i < n; ++i)
    content += "{\"prompt\": \"question " + std::to_string(i) + "\", \"completion\": \"" +
               std::string(static_cast<size_t>(i * 7919 % 300), static_cast<char>('a' + i % 26)) + "\"}\n";
  return content;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Prepare, BytesDoNotDependOnTheThreads) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = {folder.file("a.jsonl", many_records(20000)),
                                          folder.file("b.jsonl", many_records(3000))};
  const RecordFormat format = parse_format("prompt-completion");
  std::string first;
  for (const int threads : {1, 2, 5}) {
    PrepareOptions options{.cache = folder.path() / ("cache" + std::to_string(threads)), .threads = threads};
    int64_t calls = 0, last = 0;
    options.progress = [&](const PrepareProgress& p) {
      ++calls;
      EXPECT_GE(p.bytes_done, last);
      EXPECT_LE(p.bytes_done, p.bytes_total);
      last = p.bytes_done;
    };
    const PrepareReport report = prepare_store(files, format, ByteTokenizer(), options);
    EXPECT_TRUE(report.made);
    EXPECT_EQ(report.records, 23000);
    EXPECT_GT(calls, 3);
    EXPECT_EQ(last, static_cast<int64_t>(std::filesystem::file_size(files[0]) + std::filesystem::file_size(files[1])));
    const std::string bytes = read_all(report.store);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
    const auto store = open_store(report.store, 42);
    store->verify();
    for (const int64_t r : {0, 19999, 20000, 22999}) {
      const int64_t i = r < 20000 ? r : r - 20000;
      const int64_t prompt = static_cast<int64_t>(("question " + std::to_string(i)).size());
      ASSERT_EQ(store->length_of(r), prompt + i * 7919 % 300 + 1);
      EXPECT_EQ(store->spans_of(r), (std::vector<Span>{{prompt, store->length_of(r)}}));
      std::vector<int64_t> ids(static_cast<size_t>(store->length_of(r)));
      store->read(store->begin_of(r), store->length_of(r), ids.data());
      EXPECT_EQ(ids.front(), 'q');
      EXPECT_EQ(ids.back(), 256);
    }
  }
}

TEST(Prepare, RunsOnceAndAgainWhenSomethingChanges) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", "{\"text\": \"one\", \"body\": \"two\"}\n");
  const PrepareOptions options{.cache = folder.path() / "cache", .threads = 1};
  const PrepareReport first = prepare_store({path}, RecordFormat{}, ByteTokenizer(), options);
  const PrepareReport second = prepare_store({path}, RecordFormat{}, ByteTokenizer(), options);
  EXPECT_TRUE(first.made);
  EXPECT_FALSE(second.made);
  EXPECT_EQ(first.store, second.store);
  EXPECT_EQ(second.tokens, 4);
  EXPECT_EQ(second.trained, 3);
  EXPECT_NE(prepare_store({path}, parse_format("text", {{"text", "body"}}), ByteTokenizer(), options).store,
            first.store);
  EXPECT_NE(prepare_store({path}, RecordFormat{}, ByteTokenizer(259, 7), options).store, first.store);
  folder.file("a.jsonl", "{\"text\": \"three\"}\n");
  const PrepareReport changed = prepare_store({path}, RecordFormat{}, ByteTokenizer(), options);
  EXPECT_TRUE(changed.made);
  EXPECT_EQ(changed.tokens, 6);
}

TEST(Prepare, TextFilesAreOneRecordEach) {
  const TemporaryFolder folder;
  const PrepareReport report = prepare_store({folder.file("a.txt", "abc"), folder.file("b.txt", "de\n")},
                                             RecordFormat{}, ByteTokenizer(), {.cache = folder.path() / "c"});
  EXPECT_EQ(report.records, 2);
  EXPECT_EQ(report.tokens, 8);
  EXPECT_EQ(open_store(report.store)->record_name(1), (folder.path() / "b.txt").string() + ", record 1");
}

TEST(Prepare, TheFirstBadRecordInFileOrderIsNamedAndNothingIsLeft) {
  const TemporaryFolder folder;
  std::string content = many_records(30000);
  content += "{\"prompt\": \"no completion\"}\n" + many_records(30000) + "not json\n" + many_records(10);
  const std::string path = folder.file("a.jsonl", content);
  for (const int threads : {1, 4}) {
    try {
      prepare_store({path}, parse_format("prompt-completion"), ByteTokenizer(),
                    {.cache = folder.path() / "cache", .threads = threads});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_NE(std::string(error.what()).find("line 30001"), std::string::npos) << error.what();
    }
    for (const std::string& name : names_in(folder.path() / "cache")) EXPECT_TRUE(name.ends_with(".lock")) << name;
  }
}

TEST(Prepare, ErrorsOfTheChatTemplateNameFileAndLine) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl",
                                       "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"messages\": "
                                       "[{\"role\": \"wizard\", \"content\": \"a\"}]}\n");
  try {
    prepare_store({path}, parse_format("chat", {}, "llama-3"), ByteTokenizer(), {.cache = folder.path() / "c"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);  // the tokenizer lacks Llama-3's tokens: said before any record is read
  }
  try {
    prepare_store({path}, parse_format("chat", {}, "chatml"), ByteTokenizer(), {.cache = folder.path() / "c"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path + ", line 2"), std::string::npos) << error.what();
  }
}

TEST(Prepare, DataWithoutRecordsIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(
      prepare_store({folder.file("a.jsonl", "\n \n")}, RecordFormat{}, ByteTokenizer(), {.cache = folder.path() / "c"}),
      Error);
  EXPECT_THROW(prepare_store({}, RecordFormat{}, ByteTokenizer(), {.cache = folder.path() / "c"}), Error);
  EXPECT_THROW(
      prepare_store({folder.file("b.jsonl", "")}, RecordFormat{}, ByteTokenizer(), {.cache = folder.path() / "c"}),
      Error);
}

TEST(Prepare, AThrowingProgressStopsItCleanly) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", many_records(30000));
  PrepareOptions options{.cache = folder.path() / "cache", .threads = 2};
  options.progress = [](const PrepareProgress&) { throw Error(ErrorKind::Interrupted, "stopped"); };
  EXPECT_THROW(prepare_store({path}, parse_format("prompt-completion"), ByteTokenizer(), options), Error);
  for (const std::string& name : names_in(folder.path() / "cache")) EXPECT_TRUE(name.ends_with(".lock")) << name;
  options.progress = nullptr;
  EXPECT_TRUE(prepare_store({path}, parse_format("prompt-completion"), ByteTokenizer(), options).made);
}

TEST(Prepare, ADamagedStoreThatStandsIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", "{\"text\": \"one\"}\n");
  const PrepareOptions options{.cache = folder.path() / "cache"};
  const PrepareReport report = prepare_store({path}, RecordFormat{}, ByteTokenizer(), options);
  std::string bytes = read_all(report.store);
  bytes.resize(bytes.size() - 1);
  std::ofstream(report.store, std::ios::binary) << bytes;
  try {
    prepare_store({path}, RecordFormat{}, ByteTokenizer(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CorruptFile);
    EXPECT_NE(std::string(error.what()).find("delete"), std::string::npos);
  }
}

// As in a launch of several ranks: all prepare at once, exactly one makes the store, all open the same bytes. The lock
// belongs to an open file, so threads exclude each other as processes do (and a process with TBB's threads must not
// fork).
TEST(Prepare, OfSeveralMakersAtOnceOneMakesTheStore) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", many_records(5000));
  std::atomic<int> made{0}, opened{0};
  std::vector<std::thread> makers;
  for (int i = 0; i < 4; ++i)
    makers.emplace_back([&] {
      const PrepareReport report = prepare_store({path}, parse_format("prompt-completion"), ByteTokenizer(),
                                                 {.cache = folder.path() / "cache", .threads = 1});
      made += report.made;
      open_store(report.store)->verify();
      opened += report.records == 5000;
    });
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(opened, 4);
}

TEST(Prepare, LeftoversOfAKilledMakerAreRemoved) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", "{\"text\": \"one\"}\n");
  const std::filesystem::path cache = folder.path() / "cache";
  const std::filesystem::path store = store_path({path}, RecordFormat{}, ByteTokenizer(), cache);
  std::filesystem::create_directories(cache);
  std::ofstream(cache / ("." + store.filename().string() + ".123.0.tmp")) << "half";
  const PrepareReport report = prepare_store({path}, RecordFormat{}, ByteTokenizer(), {.cache = cache});
  EXPECT_EQ(report.store, store.string());
  EXPECT_EQ(names_in(cache),
            (std::vector<std::string>{store.filename().string(), store.filename().string() + ".lock"}));
}

}  // namespace
}  // namespace ballast
