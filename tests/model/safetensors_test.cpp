#include "ballast/model/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "ballast/base/error.h"
#include "ballast/model/safetensors_writer.h"

namespace ballast {
namespace {

// A file from a header text and the number of data bytes after it.
std::string file_of(const std::string& header, size_t data, uint64_t length_error = 0) {
  const uint64_t length = header.size() + length_error;
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  for (size_t i = 0; i < data; ++i) bytes += static_cast<char>(i);
  return bytes;
}

SafetensorsContent parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())), "weights.safetensors");
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes =
      file_of(R"({"__metadata__":{"format":"pt"},"b":)" + entry("F32", "[2,1]", "[2,10]") + R"(,"a":)" +
                  entry("BF16", "[]", "[0,2]") + R"(,"empty":)" + entry("I64", "[0,3]", "[10,10]") + "}   ",
              10);
  const SafetensorsContent content = parse(bytes);
  ASSERT_EQ(content.tensors.size(), 3u);
  EXPECT_EQ(content.metadata.at("format"), "pt");
  const StoredTensor& b = content.tensors.at("b");
  EXPECT_EQ(b.dtype, "F32");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(b.bytes, 8);
  EXPECT_EQ(b.numel, 2);
  EXPECT_EQ(static_cast<int>(b.data[0]), 2);
  EXPECT_EQ(content.tensors.at("a").numel, 1);
  EXPECT_EQ(content.tensors.at("empty").numel, 0);
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
}

struct Corruption {
  const char* what;
  std::string bytes;
  const char* message;
};

TEST(Safetensors, EveryCorruptionIsNamed) {
  const std::string good = R"({"a":)" + entry("F32", "[2]", "[0,8]") + "}";
  const auto one = [](const std::string& value, size_t data) { return file_of(R"({"a":)" + value + "}", data); };
  const auto two = [](const std::string& a, const std::string& b, size_t data) {
    return file_of(R"({"a":)" + a + R"(,"b":)" + b + "}", data);
  };
  const std::vector<Corruption> table = {
      {"empty file", "", "too short"},
      {"seven bytes", "1234567", "too short"},
      {"header past the end", file_of(good, 8, 100), "header length"},
      {"huge header", std::string(8, '\xff') + good, "header length"},
      {"header too short", file_of(good, 8, static_cast<uint64_t>(-1)), "not valid JSON"},
      {"no header", file_of("", 0), "not valid JSON"},
      {"not JSON", file_of("{a}", 0), "not valid JSON"},
      {"a list", file_of("[]", 0), "not an object"},
      {"a number", file_of("7", 0), "not an object"},
      {"not UTF-8", file_of("{\"\xff\":" + entry("U8", "[0]", "[0,0]") + "}", 0), "not valid JSON"},
      {"value is a number", one("3", 0), "the number 3"},
      {"value is null", one("null", 0), "null"},
      {"value is a list", one("[]", 0), "a list"},
      {"duplicate tensor",
       file_of(R"({"a":)" + entry("U8", "[1]", "[0,1]") + R"(,"a":)" + entry("U8", "[1]", "[0,1]") + "}", 1),
       "stands twice"},
      {"duplicate key", one(R"({"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]})", 1), "stands twice"},
      {"unknown key", one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1})", 1), "unknown key 'x'"},
      {"no dtype", one(R"({"shape":[1],"data_offsets":[0,1]})", 1), "no key 'dtype'"},
      {"no shape", one(R"({"dtype":"U8","data_offsets":[0,1]})", 1), "no key 'shape'"},
      {"no offsets", one(R"({"dtype":"U8","shape":[1]})", 1), "no key 'data_offsets'"},
      {"dtype unknown", one(entry("F33", "[2]", "[0,8]"), 8), "unknown dtype 'F33'"},
      {"dtype is a number", one(R"({"dtype":4,"shape":[1],"data_offsets":[0,1]})", 1), "the number 4"},
      {"shape is a string", one(R"({"dtype":"U8","shape":"1","data_offsets":[0,1]})", 1), "a string"},
      {"negative size", one(entry("U8", "[-1]", "[0,1]"), 1), "-1"},
      {"fractional size", one(entry("U8", "[1.5]", "[0,1]"), 1), "1.5"},
      {"nested shape", one(entry("U8", "[[1]]", "[0,1]"), 1), "a list"},
      {"size beyond 63 bits", one(entry("U8", "[18446744073709551615]", "[0,1]"), 1), "too large"},
      {"product overflows", one(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0), "too large"},
      {"product overflows before a zero", one(entry("F32", "[9223372036854775807,0]", "[0,0]"), 0), "too large"},
      {"17 dimensions", one(entry("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1), "16 dimensions"},
      {"one offset", one(entry("U8", "[1]", "[0]"), 1), "two numbers"},
      {"three offsets", one(entry("U8", "[1]", "[0,1,2]"), 1), "two offsets"},
      {"offsets backwards", one(entry("U8", "[1]", "[1,0]"), 1), "backwards"},
      {"range too short", one(entry("F32", "[2]", "[0,4]"), 4), "8 bytes, data_offsets 4"},
      {"range past the end", one(entry("F32", "[2]", "[0,8]"), 7), "after the end"},
      {"range far past the end", one(entry("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 7),
       "after the end"},
      {"hole at the start", one(entry("U8", "[1]", "[1,2]"), 2), "a hole"},
      {"hole between", two(entry("U8", "[1]", "[0,1]"), entry("U8", "[1]", "[2,3]"), 3), "a hole"},
      {"overlap", two(entry("U8", "[2]", "[0,2]"), entry("U8", "[2]", "[1,3]"), 3), "overlap"},
      {"the same range", two(entry("U8", "[2]", "[0,2]"), entry("U8", "[2]", "[0,2]"), 2), "overlap"},
      {"trailing bytes", one(entry("U8", "[1]", "[0,1]"), 2), "bytes follow"},
      {"metadata of numbers", file_of(R"({"__metadata__":{"a":1}})", 0), "the number 1"},
      {"metadata is a string", file_of(R"({"__metadata__":"a"})", 0), "a string"},
      {"nested metadata", file_of(R"({"__metadata__":{"a":{}}})", 0), "an object"},
      {"text after the header", file_of(good + "x", 8), "not valid JSON"},
  };
  for (const Corruption& row : table) {
    try {
      parse(row.bytes);
      ADD_FAILURE() << "accepted: " << row.what;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << row.what;
      EXPECT_NE(std::string(error.what()).find(row.message), std::string::npos) << row.what << "\n" << error.what();
      EXPECT_NE(std::string(error.what()).find("weights.safetensors"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("\n  cure:"), std::string::npos) << error.what();
    }
  }
}

TEST(Safetensors, AHeaderThatIsNoJsonIsShownWithItsPlace) {
  try {
    parse(file_of("{a}", 0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "corrupt file: the safetensors header is not valid JSON\n  where:    weights.safetensors, byte 9\n"
                 "  found:    'a}'\n  expected: string literal\n"
                 "  cure:     fetch the file again; if it was made here, save the model again with save_pretrained(FOLDER)");
  }
}

TEST(Safetensors, EveryTruncationAndEveryFlippedHeaderByteIsSafe) {
  const std::string bytes =
      file_of(R"({"a":)" + entry("F32", "[2]", "[0,8]") + R"(,"b":)" + entry("F16", "[3,1]", "[8,14]") + "}", 14);
  parse(bytes);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_THROW(parse(bytes.substr(0, size)), Error) << size;
  for (size_t place = 0; place < bytes.size() - 14; ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[place] = static_cast<char>(changed[place] ^ (1 << bit));
      try {  // a changed name or dtype of the same size is another valid file; anything else must be refused
        const SafetensorsContent content = parse(changed);
        int64_t sum = 0;
        for (const auto& [name, tensor] : content.tensors) sum += tensor.bytes;
        EXPECT_EQ(sum, 14);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::CorruptFile);
      }
    }
  }
}

TEST(Safetensors, FloatsOfEveryStorage) {
  const auto read = [](const std::string& dtype, const void* data, int64_t bytes, int64_t begin, int64_t count) {
    const int64_t size = safetensors_element_bytes(dtype);
    std::string room(static_cast<size_t>(bytes) + 1, '\0');
    std::memcpy(room.data() + 1, data, static_cast<size_t>(bytes));  // unaligned on purpose
    const StoredTensor tensor{
        dtype, {bytes / size}, reinterpret_cast<const std::byte*>(room.data()) + 1, bytes, bytes / size};
    std::vector<float> out(static_cast<size_t>(count));
    read_as_float(tensor, "a", begin, count, out.data());
    return out;
  };
  const float singles[] = {1.5f, -2.25f, 3e38f};
  EXPECT_EQ(read("F32", singles, 12, 1, 2), (std::vector<float>{-2.25f, 3e38f}));
  const uint16_t brains[] = {0x3fc0, 0xc010, 0x7f80};
  EXPECT_EQ(read("BF16", brains, 6, 0, 3), (std::vector<float>{1.5f, -2.25f, std::numeric_limits<float>::infinity()}));
  const uint16_t halves[] = {0x3e00, 0xc080, 0x0001};
  EXPECT_EQ(read("F16", halves, 6, 0, 3), (std::vector<float>{1.5f, -2.25f, 5.9604644775390625e-8f}));
  const double doubles[] = {1.5, -2.25, 1e300};
  EXPECT_EQ(read("F64", doubles, 24, 0, 2), (std::vector<float>{1.5f, -2.25f}));
  try {
    read("F64", doubles, 24, 0, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("element 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(read("I32", singles, 12, 0, 1), Error);
}

class SafetensorsFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() / ("ballast_safetensors_" + std::to_string(::getpid()) + "_" +
                                                       testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void text(const std::string& name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
  }
  std::string index_error(const std::string& weight_map) {
    text("model.safetensors.index.json", R"({"weight_map":)" + weight_map + "}");
    try {
      SafetensorsSet::open_index(folder / "model.safetensors.index.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  std::filesystem::path folder;
};

TEST_F(SafetensorsFiles, WhatIsWrittenInAnyOrderReadsBack) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {7};
  {
    SafetensorsWriter writer(folder / "x.safetensors", {{"a", "F32", {2, 3}}, {"b \"quoted\" \xc3\xa9", "F32", {}}});
    writer.write("b \"quoted\" \xc3\xa9", b.data(), 4);
    writer.write("a", a.data() + 3, 12, 12);
    writer.write("a", a.data(), 12, 0);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.safetensors"));
    writer.finish();
  }
  const SafetensorsSet set = SafetensorsSet::open_file(folder / "x.safetensors");
  EXPECT_EQ(set.metadata().at("format"), "pt");
  std::vector<float> out(6);
  read_as_float(*set.find("a"), "a", 0, 6, out.data());
  EXPECT_EQ(out, a);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(set.find("a")->data) % 8, 0u);
  read_as_float(*set.find("b \"quoted\" \xc3\xa9"), "b", 0, 1, out.data());
  EXPECT_EQ(out[0], 7);
  EXPECT_EQ(set.find("c"), nullptr);
}

TEST_F(SafetensorsFiles, AnUnfinishedFileLeavesNothing) {
  const float value = 1;
  {
    SafetensorsWriter writer(folder / "x.safetensors", {{"a", "F32", {2}}});
    writer.write("a", &value, 4);
    EXPECT_THROW(writer.finish(), Error);  // half of it is missing
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_THROW(SafetensorsWriter(folder / "no" / "x.safetensors", {}), Error);
}

TEST_F(SafetensorsFiles, ShardsAndIndexMustAgree) {
  const std::string a = file_of(R"({"a":)" + entry("U8", "[1]", "[0,1]") + "}", 1);
  const std::string b = file_of(R"({"b":)" + entry("U8", "[2]", "[0,2]") + "}", 2);
  text("one.safetensors", a);
  text("two.safetensors", b);
  text("three.safetensors", b);
  EXPECT_EQ(index_error(R"({"a":"one.safetensors","b":"two.safetensors"})"), "accepted");
  EXPECT_NE(index_error(R"({"a":"one.safetensors","b":"one.safetensors"})").find("tensor 'b' is not in the shard"),
            std::string::npos);
  EXPECT_NE(index_error(R"({"a":"one.safetensors","c":"two.safetensors"})").find("'c' is not in the shard"),
            std::string::npos);
  EXPECT_NE(index_error(R"({"a":"two.safetensors","b":"one.safetensors"})").find("not in the shard"),
            std::string::npos);
  EXPECT_NE(index_error(R"({"a":"one.safetensors","b":"two.safetensors","c":"three.safetensors"})")
                .find("two shards hold tensor 'b'"),
            std::string::npos);
  EXPECT_NE(index_error(R"({"b":"two.safetensors","a":"none.safetensors"})").find("none.safetensors"),
            std::string::npos);
  for (const char* path :
       {"../one.safetensors", "/etc/passwd", "", ".", "..", "sub/one.safetensors", "a\\\\b", "a\\u0000b"})
    EXPECT_NE(index_error(R"({"a":")" + std::string(path) + R"("})").find("plain file name"), std::string::npos)
        << path;
  EXPECT_NE(index_error(R"({"a":3})").find("no string"), std::string::npos);
  EXPECT_NE(index_error("{}").find("no map"), std::string::npos);
  EXPECT_NE(index_error("[]").find("no map"), std::string::npos);
  text("model.safetensors.index.json", "{");
  EXPECT_THROW(SafetensorsSet::open_index(folder / "model.safetensors.index.json"), Error);
  // A tensor in a shard that the index leaves out.
  text("four.safetensors",
       file_of(R"({"a":)" + entry("U8", "[1]", "[0,1]") + R"(,"z":)" + entry("U8", "[1]", "[1,2]") + "}", 2));
  EXPECT_NE(index_error(R"({"a":"four.safetensors"})").find("'z'"), std::string::npos);
}

TEST_F(SafetensorsFiles, FilesThatCannotBeOpened) {
  EXPECT_THROW(SafetensorsSet::open_file(folder / "none.safetensors"), Error);
  EXPECT_THROW(SafetensorsSet::open_file(folder), Error);
  text("empty.safetensors", "");
  EXPECT_THROW(SafetensorsSet::open_file(folder / "empty.safetensors"), Error);
}

}  // namespace
}  // namespace ballast
