// llm.c and Megatron files: values, and a table of damaged headers.
#include "ballast/data/foreign_store.h"

#include <gtest/gtest.h>

#include "ballast/base/error.h"
#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::TemporaryFolder;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Token>
std::string llmc(int32_t magic, int32_t version, int32_t count, const std::vector<Token>& tokens) {
  std::string bytes;
  put(bytes, magic), put(bytes, version), put(bytes, count);
  bytes.resize(1024);
  for (const Token t : tokens) put(bytes, t);
  return bytes;
}

std::string megatron_index(uint8_t code, const std::vector<int32_t>& sizes, int64_t width, uint64_t version = 1) {
  std::string bytes("MMIDIDX\0\0", 9);
  put(bytes, version), put(bytes, code), put(bytes, static_cast<uint64_t>(sizes.size())),
      put(bytes, static_cast<uint64_t>(sizes.size() + 1));
  int64_t pointer = 0;
  for (const int32_t s : sizes) put(bytes, s);
  for (const int32_t s : sizes) put(bytes, pointer), pointer += s * width;
  for (int64_t d = 0; d <= static_cast<int64_t>(sizes.size()); ++d) put(bytes, d);
  return bytes;
}

std::vector<int64_t> read(const TokenStore& store) {
  std::vector<int64_t> ids(static_cast<size_t>(store.tokens()));
  store.read(0, store.tokens(), ids.data());
  return ids;
}

TEST(Llmc, ReadsBothWidths) {
  const TemporaryFolder folder;
  const auto narrow = open_foreign(folder.file("a.bin", llmc<uint16_t>(20240520, 1, 4, {50256, 1, 2, 65535})));
  EXPECT_EQ(narrow->records(), 1);
  EXPECT_EQ(read(*narrow), (std::vector<int64_t>{50256, 1, 2, 65535}));
  EXPECT_EQ(narrow->highest_id(), 65535);
  EXPECT_TRUE(narrow->all_trained());
  EXPECT_EQ(narrow->trained_in(0, 0, 4), 3);
  const auto wide = open_foreign(folder.file("b.bin", llmc<uint32_t>(20240801, 7, 3, {128000, 1, 2})));
  EXPECT_EQ(read(*wide), (std::vector<int64_t>{128000, 1, 2}));
  EXPECT_THROW(check_vocabulary(*wide, 128000), Error);
  check_vocabulary(*wide, 128001);
  EXPECT_NE(narrow->fingerprint(), wide->fingerprint());
  EXPECT_STREQ(foreign_facts(narrow->path()).dtype, "uint16");
  EXPECT_STREQ(foreign_facts(wide->path()).dtype, "uint32");
  EXPECT_FALSE(foreign_facts(wide->path()).megatron);
}

TEST(Llmc, DamagedFilesAreTypedErrors) {
  const TemporaryFolder folder;
  const std::string good = llmc<uint16_t>(20240520, 1, 4, {1, 2, 3, 4});
  for (const std::string& bytes :
       {good.substr(0, 100), good.substr(0, good.size() - 1), good.substr(0, good.size() - 2), good + "xx",
        llmc<uint16_t>(20240521, 1, 4, {1, 2, 3, 4}), llmc<uint16_t>(20240520, 2, 4, {1, 2, 3, 4}),
        llmc<uint16_t>(20240520, 1, -4, {1, 2, 3, 4}), llmc<uint16_t>(20240801, 7, 4, {1, 2, 3, 4}),
        std::string(2000, 'x')}) {
    const std::string path = folder.file("bad.bin", bytes);
    try {
      open_foreign(path);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
  EXPECT_THROW(open_foreign(folder.file("none.bin", llmc<uint16_t>(20240520, 1, 0, {}))), Error);
}

TEST(Megatron, ReadsSequencesAsRecords) {
  const TemporaryFolder folder;
  std::string tokens;
  for (const uint16_t t : {1, 2, 3, 9, 8, 7, 6}) put(tokens, t);
  const std::string bin = folder.file("m.bin", tokens), idx = folder.file("m.idx", megatron_index(8, {3, 0, 4}, 2));
  for (const std::string& path : {bin, idx}) {
    const auto store = open_foreign(path);
    ASSERT_EQ(store->records(), 3);
    EXPECT_EQ(store->length_of(0), 3);
    EXPECT_EQ(store->length_of(1), 0);
    EXPECT_EQ(store->length_of(2), 4);
    EXPECT_EQ(store->record_at(3), 2);
    EXPECT_EQ(read(*store), (std::vector<int64_t>{1, 2, 3, 9, 8, 7, 6}));
    EXPECT_EQ(store->highest_id(), 9);
  }
  std::string wide;
  for (const int32_t t : {100000, 2, -1}) put(wide, t);
  folder.file("w.bin", wide);
  const auto store = open_foreign(folder.file("w.idx", megatron_index(4, {1, 2}, 4)));
  EXPECT_EQ(read(*store)[0], 100000);
  const ForeignFacts facts = foreign_facts(store->path());
  EXPECT_TRUE(facts.megatron);
  EXPECT_STREQ(facts.dtype, "int32");
  EXPECT_EQ(facts.documents, 2);
  EXPECT_THROW(check_vocabulary(*store, 200000), Error);  // the negative id is above any vocabulary
}

TEST(Megatron, DamagedIndicesAreTypedErrors) {
  const TemporaryFolder folder;
  std::string tokens;
  for (const uint16_t t : {1, 2, 3, 9, 8, 7, 6}) put(tokens, t);
  folder.file("m.bin", tokens);
  const std::string good = megatron_index(8, {3, 4}, 2);
  std::vector<std::string> bad = {good.substr(0, 20),
                                  good + "x",
                                  megatron_index(8, {3, 4}, 2, 2),
                                  megatron_index(7, {3, 4}, 2),
                                  megatron_index(8, {3, 3}, 2),
                                  megatron_index(8, {3, 5}, 2),
                                  megatron_index(4, {3, 4}, 4),
                                  megatron_index(8, {-1, 8}, 2),
                                  megatron_index(8, {3, 4}, 3)};
  for (size_t n = 0; n < good.size(); n += 3) bad.push_back(good.substr(0, n));
  for (const size_t at : {0, 9, 17, 18, 25, 26, 33}) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 0x40);
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    folder.file("m.idx", bad[i]);
    try {
      open_foreign((folder.path() / "m.bin").string());
      ADD_FAILURE() << i;
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::CorruptFile || (bad[i].empty() && error.kind() == ErrorKind::Data))
          << error.what();
    }
  }
  folder.file("m.idx", good);
  EXPECT_EQ(open_foreign((folder.path() / "m.bin").string())->records(), 2);
  std::filesystem::remove(folder.path() / "m.bin");
  EXPECT_THROW(open_foreign((folder.path() / "m.idx").string()), Error);
}

}  // namespace
}  // namespace ballast
