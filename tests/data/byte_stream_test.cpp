// Streams: every compression gives the same bytes at every read size; damage of any byte is an error or changes
// nothing.
#include "ballast/data/byte_stream.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "ballast/base/error.h"
#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::TemporaryFolder;

std::string gzip(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data())), z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data()), z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::string drain(const std::string& path, size_t step) {
  const auto stream = open_stream(path);
  std::string text, part(step, '\0');
  while (const size_t got = stream->read(part.data(), step)) text.append(part, 0, got);
  EXPECT_EQ(stream->consumed(), static_cast<int64_t>(std::filesystem::file_size(path)));
  return text;
}

std::string sample_text() {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += std::to_string(i * 7919 % 10007) + "\n";
  return text;
}

TEST(ByteStream, PlainGzipAndZstandardGiveTheSameBytes) {
  const TemporaryFolder folder;
  const std::string text = sample_text();
  const std::string plain = folder.file("a.jsonl", text), gz = folder.file("a.jsonl.gz", gzip(text)),
                    zst = folder.file("a.jsonl.zst", zstd(text));
  for (const size_t step : {1 << 20, 4096, 777}) {
    EXPECT_EQ(drain(plain, step), text);
    EXPECT_EQ(drain(gz, step), text);
    EXPECT_EQ(drain(zst, step), text);
  }
}

TEST(ByteStream, ReadsSeveralMembersAndFrames) {
  const TemporaryFolder folder;
  EXPECT_EQ(drain(folder.file("a.gz", gzip("one") + gzip("") + gzip("two")), 2), "onetwo");
  EXPECT_EQ(drain(folder.file("b.gz", gzip("one") + std::string(512, '\0')), 100), "one");
  EXPECT_EQ(drain(folder.file("a.zst", zstd("one") + zstd("") + zstd("two")), 2), "onetwo");
}

TEST(ByteStream, TruncationAnywhereIsCorrupt) {
  const TemporaryFolder folder;
  const std::string text = "some text that is long enough to compress compress compress";
  for (const bool gz : {true, false}) {
    const std::string whole = gz ? gzip(text) : zstd(text);
    for (size_t n = 4; n < whole.size(); ++n) {
      const std::string path = folder.file(gz ? "t.gz" : "t.zst", whole.substr(0, n));
      try {
        drain(path, 100);
        ADD_FAILURE() << path << " " << n;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << error.what();
        EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
      }
    }
  }
}

TEST(ByteStream, AFlippedByteNeverGivesOtherText) {
  const TemporaryFolder folder;
  const std::string text = "some text that is long enough to compress compress compress";
  int refused = 0;
  for (const bool gz : {true, false}) {
    const std::string whole = gz ? gzip(text) : zstd(text);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string wrong = whole;
      wrong[i] = static_cast<char>(wrong[i] ^ 0x10);
      const std::string path = folder.file(gz ? "f.gz" : "f.zst", wrong);
      try {
        // Gzip's time stamp and name bits lie outside its checksum.
        const auto stream = open_stream(path);
        std::string got, part(100, '\0');
        while (const size_t n = stream->read(part.data(), part.size())) got.append(part, 0, n);
        EXPECT_EQ(got, text) << i;
      } catch (const Error& error) {
        ++refused;
        EXPECT_TRUE(error.kind() == ErrorKind::CorruptFile || error.kind() == ErrorKind::Data) << error.what();
      }
    }
  }
  EXPECT_GT(refused, 80);
}

TEST(ByteStream, GarbageAfterTheEndIsCorrupt) {
  const TemporaryFolder folder;
  EXPECT_THROW(drain(folder.file("a.gz", gzip("one") + "garbage"), 100), Error);
  EXPECT_THROW(drain(folder.file("a.zst", zstd("one") + "garbage"), 100), Error);
}

TEST(ByteStream, NameAndContentMustAgree) {
  const TemporaryFolder folder;
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{{"a.jsonl", gzip("x")},
                                                                                      {"b.jsonl", zstd("x")},
                                                                                      {"c.gz", "plain text"},
                                                                                      {"d.zst", "plain text"},
                                                                                      {"e.gz", zstd("x")}}) {
    try {
      open_stream(folder.file(name, content));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_NE(std::string(error.what()).find("rename"), std::string::npos) << error.what();
    }
  }
}

TEST(ByteStream, MissingEmptyAndFolderAreDataErrors) {
  const TemporaryFolder folder;
  folder.file("train.jsonl", "x");
  const auto message = [](const std::string& path) {
    try {
      open_stream(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message((folder.path() / "trian.jsonl").string()).find("did you mean 'train.jsonl'"), std::string::npos);
  EXPECT_NE(message(folder.file("empty.jsonl", "")).find("empty"), std::string::npos);
  EXPECT_NE(message(folder.path().string()).find("folder"), std::string::npos);
}

}  // namespace
}  // namespace ballast
