#include "ballast/base/json_fault.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

JsonFault fault_of(const std::string& text) {
  try {
    const auto parsed = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& fault) {
    return describe_json_fault(fault, text);
  }
  ADD_FAILURE() << text << " is JSON";
  return {};
}

TEST(JsonFault, NamesPlaceFoundAndExpected) {
  const JsonFault key = fault_of("{\"a\": 1,\n b}");
  EXPECT_EQ(key.place, "byte 10 (line 2, column 2)");
  EXPECT_EQ(key.byte, 10);
  EXPECT_EQ(key.found, "'b}'");
  EXPECT_EQ(key.expected, "string literal");
  const JsonFault end = fault_of("{\"a\": [1, 2");
  EXPECT_EQ(end.place, "byte 11 (line 1, column 12)");
  EXPECT_EQ(end.found, "the end of the text");
  EXPECT_EQ(end.expected, "']'");
  EXPECT_EQ(fault_of("").found, "no text");
  EXPECT_EQ(fault_of("{} x").expected, "end of input");
  EXPECT_EQ(fault_of("[\"\xff\"]").expected, "valid UTF-8");
  EXPECT_EQ(fault_of("[\"a\nb\"]").found, "the end of the line");
  EXPECT_EQ(fault_of("[" + std::string(100, 'x') + "]").found, "'" + std::string(24, 'x') + "'");
}

TEST(JsonFault, NamesKeysAndTypes) {
  const nlohmann::json json = {{"step", "four"}};
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const nlohmann::json::exception& fault) {
      return json_error(ErrorKind::CorruptFile, "damaged", "a.json", fault).what();
    }
    return "no fault";
  };
  EXPECT_EQ(message([&] { json.at("files"); }),
            "corrupt file: damaged\n  where:    a.json\n  found:    no key 'files'");
  EXPECT_EQ(message([&] { json.at("step").get<int64_t>(); }),
            "corrupt file: damaged\n  where:    a.json\n  found:    string\n  expected: number");
}

}  // namespace
}  // namespace ballast
