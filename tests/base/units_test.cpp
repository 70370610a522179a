// Quantities: exact values of what people write, and the message for what they may not write.
#include "ballast/base/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "ballast/base/error.h"

namespace ballast {
namespace {

template <class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Units, BytesAreExact) {
  const std::vector<std::pair<std::string, int64_t>> table{{"0", 0},
                                                           {"512", 512},
                                                           {"512B", 512},
                                                           {"64KB", 64'000},
                                                           {"64kB", 64'000},
                                                           {"64KiB", 65'536},
                                                           {"200MB", 200'000'000},
                                                           {"4GiB", 4'294'967'296},
                                                           {"4 GiB", 4'294'967'296},
                                                           {"1.5GiB", 1'610'612'736},
                                                           {"1.1GB", 1'100'000'000},
                                                           {"0.001kB", 1},
                                                           {"1e3", 1000},
                                                           {"2.5e3KB", 2'500'000},
                                                           {"9223372036854775807", std::numeric_limits<int64_t>::max()},
                                                           {"8191PiB", 8191LL << 50}};
  for (const auto& [text, value] : table) EXPECT_EQ(parse_bytes(text), value) << text;
}

TEST(Units, RatesAreBytesPerSecond) {
  const std::vector<std::pair<std::string, double>> table{
      {"200MB/s", 200e6},       {"200Mbit", 25e6}, {"200Mbit/s", 25e6}, {"1Gbit/s", 125e6}, {"1Gbit", 125e6},
      {"4GiB/s", 4294967296.0}, {"25e6", 25e6},    {"8bit/s", 1},       {"0.5 kB/s", 500},  {"0", 0}};
  for (const auto& [text, value] : table) EXPECT_DOUBLE_EQ(parse_rate(text), value) << text;
}

TEST(Units, TimesAreSeconds) {
  const std::vector<std::pair<std::string, double>> table{
      {"3ms", 0.003}, {"2h", 7200},   {"250us", 250e-6}, {"250\xc2\xb5s", 250e-6}, {"7ns", 7e-9},
      {"1.5", 1.5},   {"1.5 s", 1.5}, {"10min", 600},    {"2d", 172800},           {"0", 0}};
  for (const auto& [text, value] : table) EXPECT_EQ(parse_time(text), value) << text;
}

TEST(Units, CountsAreWhole) {
  const std::vector<std::pair<std::string, int64_t>> table{{"42", 42},
                                                           {"2M", 2'000'000},
                                                           {"10k", 10'000},
                                                           {"10K", 10'000},
                                                           {"1.5k", 1500},
                                                           {"1e6", 1'000'000},
                                                           {"3B", 3'000'000'000},
                                                           {"-1", -1},
                                                           {"+5", 5},
                                                           {"0", 0},
                                                           {"0e300", 0},
                                                           {"1200e-2", 12},
                                                           {"2T", 2'000'000'000'000}};
  for (const auto& [text, value] : table) EXPECT_EQ(parse_count(text), value) << text;
}

TEST(Units, NumbersAreFiniteAndDecimal) {
  const std::vector<std::pair<std::string, double>> table{{"6e-4", 6e-4}, {"0.95", 0.95}, {"3", 3},      {"-2.5", -2.5},
                                                          {"+1", 1},      {".5", 0.5},    {"1e-8", 1e-8}};
  for (const auto& [text, value] : table) EXPECT_EQ(parse_number(text), value) << text;
  for (const char* text :
       {"", " ", "x", "nan", "inf", "-inf", "0x10", "1e999", "1.2.3", "1,5", "--1", "+-1", "1e", "6e-4x"}) {
    EXPECT_THROW(parse_number(text), Error) << text;
  }
}

TEST(Units, WrongQuantitiesSayWhatWasFoundAndGiveExamples) {
  for (const char* text :
       {"", "GiB", "4G", "4gib", "4GiBs", "-1GB", "1.5B", "0.5", "four", "4GiB 2", "9223372036854775808", "8192PiB",
        "1e30", "1e", "1e+", "1e-400", "99999999999999999999", "nan", "4Gbit"}) {
    const std::string message = message_of([&] { parse_bytes(text); });
    EXPECT_NE(message.find("found:    '" + std::string(text) + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("4GiB"), std::string::npos) << message;
  }
  for (const char* text : {"", "fast", "200MB", "200Mb/s", "200Mbps", "-1MB/s", "1/s", "1e300000GB/s", "200Mbit/h"}) {
    EXPECT_NE(message_of([&] { parse_rate(text); }).find("200Mbit"), std::string::npos) << text;
  }
  for (const char* text : {"", "3m", "ms", "-1s", "1h30min", "3 fortnights"}) {
    EXPECT_NE(message_of([&] { parse_time(text); }).find("3ms"), std::string::npos) << text;
  }
  for (const char* text : {"", "many", "1.5", "2 M tokens", "2MB", "1e30", "0x10", "1_000", "0.0001k"}) {
    EXPECT_NE(message_of([&] { parse_count(text); }).find("2M"), std::string::npos) << text;
  }
}

TEST(Units, AmbiguousUnitsNameTheCure) {
  EXPECT_NE(message_of([] { parse_bytes("4G"); }).find("'GiB' a power of 1024"), std::string::npos);
  EXPECT_NE(message_of([] { parse_rate("200MB"); }).find("add '/s'"), std::string::npos);
  EXPECT_NE(message_of([] { parse_time("3m"); }).find("'min' for minutes"), std::string::npos);
}

TEST(Units, ControlCharactersAreShownSafely) {
  EXPECT_NE(message_of([] { parse_bytes("\x1b[31m"); }).find("\\x1b[31m"), std::string::npos);
}

TEST(Units, Printing) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1 MiB");
  EXPECT_EQ(format_bytes(4'294'967'296), "4 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2 KiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "8 EiB");
  EXPECT_EQ(format_rate(25e6), "25 MB/s");
  EXPECT_EQ(format_rate(1.234e9), "1.23 GB/s");
  EXPECT_EQ(format_time(0), "0 s");
  EXPECT_EQ(format_time(0.003), "3 ms");
  EXPECT_EQ(format_time(7e-9), "7 ns");
  EXPECT_EQ(format_time(12.34), "12.3 s");
  EXPECT_EQ(format_time(125), "2 min 05 s");
  EXPECT_EQ(format_time(7500), "2 h 05 min");
  EXPECT_EQ(format_time(86400 * 3), "3 d");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(2'100'000), "2.1M");
  EXPECT_EQ(format_count(999'999), "1M");
}

}  // namespace
}  // namespace ballast
