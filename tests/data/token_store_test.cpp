// Token stores: what is written comes back; every flipped byte and every truncation is a typed error.
#include "ballast/data/token_store.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include "ballast/base/error.h"
#include "ballast/data/store_writer.h"
#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::read_all;
using testing::TemporaryFolder;

const std::vector<TokenizedRecord> kRecords = {{{1, 2, 3, 4, 256}, {{2, 5}}},
                                               {{256}, {{0, 1}}},
                                               {{7, 8, 9, 10, 11, 256}, {{0, 2}, {3, 4}, {5, 6}}},
                                               {{5, 256}, {{1, 2}}}};

std::string write_store(const TemporaryFolder& folder, const std::vector<TokenizedRecord>& records,
                        bool all_trained = false, int64_t vocab = 300) {
  const std::filesystem::path path = folder.path() / "t.store";
  write_aside(path, [&](FileWriter& out) {
    StoreWriter writer(out, folder.path(),
                       {.tokenizer_hash = 42, .vocab_size = vocab, .end_of_text = 256, .all_trained = all_trained});
    for (TokenizedRecord record : records) {
      if (all_trained) record.trained = {{0, static_cast<int64_t>(record.tokens.size())}};
      writer.add(record);
    }
    writer.finish("{\"files\":[{\"path\":\"a.jsonl\",\"records\":1},{\"path\":\"b.jsonl\",\"records\":" +
                  std::to_string(records.size() - 1) + "}]}");
  });
  return path.string();
}

std::vector<int64_t> read(const TokenStore& store, int64_t begin, int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  store.read(begin, count, ids.data());
  return ids;
}

TEST(TokenStore, GivesBackWhatWasWritten) {
  for (const int64_t vocab : {300, 65536, 65537, 1 << 20}) {
    const TemporaryFolder folder;
    const auto store = open_store(write_store(folder, kRecords, false, vocab), 42);
    ASSERT_EQ(store->records(), 4);
    ASSERT_EQ(store->tokens(), 14);
    for (int64_t r = 0; r < 4; ++r) {
      const TokenizedRecord& record = kRecords[static_cast<size_t>(r)];
      ASSERT_EQ(store->length_of(r), static_cast<int64_t>(record.tokens.size()));
      EXPECT_EQ(read(*store, store->begin_of(r), store->length_of(r)),
                std::vector<int64_t>(record.tokens.begin(), record.tokens.end()));
      EXPECT_EQ(store->spans_of(r), record.trained);
      for (int64_t i = 0; i < store->length_of(r); ++i) EXPECT_EQ(store->record_at(store->begin_of(r) + i), r);
    }
    EXPECT_EQ(store->highest_id(), 256);
    store->verify();
    const StoreFooter footer = read_footer(store->path());
    EXPECT_EQ(footer.token_bytes, vocab <= 65536 ? 2u : 4u);
    EXPECT_EQ(footer.trained, 3u + 0u + 3u + 1u);
    EXPECT_EQ(footer.short_records, 1u);
    EXPECT_EQ(store->record_name(0), "a.jsonl, record 1");
    EXPECT_EQ(store->record_name(3), "b.jsonl, record 3");
  }
}

TEST(TokenStore, CountsTrainedTargetsInAnyRange) {
  const TemporaryFolder folder;
  const auto store = open_store(write_store(folder, kRecords));
  for (int64_t r = 0; r < store->records(); ++r)
    for (int64_t begin = 0; begin <= store->length_of(r); ++begin)
      for (int64_t end = begin; end <= store->length_of(r); ++end) {
        int64_t expected = 0;
        for (int64_t i = begin; i < end; ++i)
          for (const Span& s : kRecords[static_cast<size_t>(r)].trained) expected += i > 0 && s.begin <= i && i < s.end;
        ASSERT_EQ(store->trained_in(r, begin, end), expected) << r << " [" << begin << ", " << end << ")";
      }
  const auto whole = open_store(write_store(folder, kRecords, true));
  EXPECT_TRUE(whole->all_trained());
  EXPECT_EQ(whole->trained_in(0, 0, 5), 4);
  EXPECT_EQ(whole->trained_in(0, 2, 4), 2);
  EXPECT_EQ(whole->trained_in(1, 0, 1), 0);
}

TEST(TokenStore, ReadsAcrossChecksumChunks) {
  const TemporaryFolder folder;
  std::vector<TokenizedRecord> records;
  for (int r = 0; r < 50; ++r) {
    TokenizedRecord record;
    for (int i = 0; i < 3001; ++i) record.tokens.push_back((r * 31 + i) % 257);
    records.push_back(record);
  }
  const auto store = open_store(write_store(folder, records, true));  // 300 KB: 5 chunks
  for (int64_t r = 49; r >= 0; r -= 3) {
    const auto& tokens = records[static_cast<size_t>(r)].tokens;
    EXPECT_EQ(read(*store, store->begin_of(r), 3001), std::vector<int64_t>(tokens.begin(), tokens.end()));
  }
  store->verify();
  // A wrong byte in chunk 2 stops readers of that chunk only.
  std::string bytes = read_all(store->path());
  bytes[4096 + 2 * 65536 + 5] ^= 1;
  const auto wrong = open_store(folder.file("w.store", bytes));
  EXPECT_EQ(read(*wrong, 0, 65536)[1], 1);
  EXPECT_THROW(read(*wrong, 2 * 32768 - 1, 2), Error);
  EXPECT_THROW(wrong->verify(), Error);
}

TEST(TokenStore, EveryFlippedByteIsATypedError) {
  const TemporaryFolder folder;
  for (const bool all_trained : {false, true}) {
    const std::string whole = read_all(write_store(folder, kRecords, all_trained));
    for (size_t i = 0; i < whole.size(); ++i) {
      if (i > 600 && i < 4096 && i % 97) continue;  // zeros, all alike
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
      const std::string path = folder.file("flip.store", bytes);
      try {
        open_store(path, 42)->verify();
        ADD_FAILURE() << "byte " << i << " of " << whole.size();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << error.what();
        EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
      }
    }
  }
}

TEST(TokenStore, EveryTruncationAndAdditionIsATypedError) {
  const TemporaryFolder folder;
  const std::string whole = read_all(write_store(folder, kRecords));
  for (size_t n = 0; n<whole.size(); n += n> 8 && n < 4000 ? 501 : 1) {
    const std::string path = folder.file("cut.store", whole.substr(0, n));
    try {
      open_store(path);
      ADD_FAILURE() << n;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), n == 0 ? ErrorKind::Data : ErrorKind::CorruptFile) << error.what();
    }
  }
  for (const size_t n : {1, 8, 64, 4096})
    EXPECT_THROW(open_store(folder.file("long.store", whole + std::string(n, '\0'))), Error);
}

// A footer whose checksum is right but whose counts lie must not be believed either.
TEST(TokenStore, ImpossibleFootersAreTypedErrors) {
  const TemporaryFolder folder;
  const std::string whole = read_all(write_store(folder, kRecords));
  const size_t at = whole.size() - sizeof(StoreFooter);
  const auto with = [&](const std::function<void(StoreFooter&)>& change) {
    StoreFooter footer;
    std::memcpy(&footer, whole.data() + at, sizeof footer);
    change(footer);
    footer.checksum = XXH3_64bits(&footer, offsetof(StoreFooter, checksum));
    std::string bytes = whole;
    std::memcpy(bytes.data() + at, &footer, sizeof footer);
    return folder.file("lie.store", bytes);
  };
  const std::vector<std::function<void(StoreFooter&)>> lies = {
      [](StoreFooter& f) { f.records = ~uint64_t{0}; },
      [](StoreFooter& f) { f.records = 0; },
      [](StoreFooter& f) { f.records = f.file_bytes; },
      [](StoreFooter& f) { f.tokens = uint64_t{1} << 63; },
      [](StoreFooter& f) { f.tokens += 1; },
      [](StoreFooter& f) { f.spans = uint64_t{1} << 60; },
      [](StoreFooter& f) { f.token_bytes = 3; },
      [](StoreFooter& f) { f.token_bytes = 4; },
      [](StoreFooter& f) { f.all_trained = 1; },
      [](StoreFooter& f) { f.all_trained = 7; },
      [](StoreFooter& f) { f.vocab_size = 0; },
      [](StoreFooter& f) { f.highest_id = f.vocab_size; },
      [](StoreFooter& f) { f.highest_id = 3; },
      [](StoreFooter& f) { f.token_region.offset = 0; },
      [](StoreFooter& f) { f.offset_region.offset += 8; },
      [](StoreFooter& f) { f.source_region.bytes = ~uint64_t{0}; },
      [](StoreFooter& f) { f.sum_region.bytes = 16; },
      [](StoreFooter& f) { f.file_bytes += 64; },
      [](StoreFooter& f) { f.version = 2; },
      [](StoreFooter& f) { std::swap(f.span_region, f.offset_region); }};
  for (size_t i = 0; i < lies.size(); ++i) {
    const std::string path = with(lies[i]);
    try {
      open_store(path)->verify();
      ADD_FAILURE() << "lie " << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << i << " " << error.what();
    }
  }
  open_store(with([](StoreFooter&) {}))->verify();  // the method itself is sound
}

TEST(TokenStore, AnotherTokenizerIsRefusedWithACure) {
  const TemporaryFolder folder;
  const std::string path = write_store(folder, kRecords);
  try {
    open_store(path, 43);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    EXPECT_NE(std::string(error.what()).find("cure:"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("000000000000002a"), std::string::npos) << error.what();
  }
}

TEST(TokenStore, IdsBeyondTheModelsVocabularyAreRefused) {
  const TemporaryFolder folder;
  const auto store = open_store(write_store(folder, kRecords));
  check_vocabulary(*store, 257);
  EXPECT_THROW(check_vocabulary(*store, 256), Error);
}

TEST(TokenStore, AnIdOutsideTheTokenizersVocabularyIsRefusedOnWriting) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_store(folder, {{{300}, {{0, 1}}}, {{1}, {{0, 1}}}}), Error);
  EXPECT_THROW(write_store(folder, {{{-1}, {{0, 1}}}, {{1}, {{0, 1}}}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenStore, IsDescribed) {
  const TemporaryFolder folder;
  const std::string text = describe_store(write_store(folder, kRecords));
  EXPECT_NE(text.find("\"tokens\": 14"), std::string::npos) << text;
  EXPECT_NE(text.find("b.jsonl"), std::string::npos) << text;
}

}  // namespace
}  // namespace ballast
