#include "ballast/base/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "ballast/base/error.h"

namespace ballast {

namespace {

// sign * mantissa * 10^exponent, so that "1.1GB" is exact where a double is not.
struct Decimal {
  bool negative = false;
  int64_t mantissa = 0;
  int exponent = 0;
  double value() const {
    const double magnitude = static_cast<double>(mantissa);
    const double scaled = exponent < 0 ? magnitude / std::pow(10.0, -exponent) : magnitude * std::pow(10.0, exponent);
    return negative ? -scaled : scaled;
  }
};

struct Unit {
  std::string_view name;
  int64_t scale;
};

constexpr Unit kByteUnits[] = {{"B", 1},
                               {"kB", 1000},
                               {"KB", 1000},
                               {"MB", 1000'000},
                               {"GB", 1000'000'000},
                               {"TB", 1000'000'000'000},
                               {"PB", 1000'000'000'000'000},
                               {"KiB", 1LL << 10},
                               {"kiB", 1LL << 10},
                               {"MiB", 1LL << 20},
                               {"GiB", 1LL << 30},
                               {"TiB", 1LL << 40},
                               {"PiB", 1LL << 50}};
constexpr Unit kBitUnits[] = {{"bit", 1},         {"kbit", 1000},         {"Kbit", 1000},
                              {"Mbit", 1000'000}, {"Gbit", 1000'000'000}, {"Tbit", 1000'000'000'000}};
constexpr Unit kTimeUnits[] = {{"ns", 1},
                               {"us", 1000},
                               {"\xc2\xb5s", 1000},
                               {"ms", 1000'000},
                               {"s", 1000'000'000},
                               {"min", 60'000'000'000},
                               {"h", 3'600'000'000'000},
                               {"d", 86'400'000'000'000}};
constexpr Unit kCountUnits[] = {{"k", 1000},         {"K", 1000},         {"M", 1000'000},
                                {"G", 1000'000'000}, {"B", 1000'000'000}, {"T", 1000'000'000'000}};

constexpr std::string_view kBytesExamples = "bytes such as 512, 64KB, 200MB, 4GiB";
constexpr std::string_view kRateExamples = "a rate such as 200MB/s, 4GiB/s, 200Mbit, 1Gbit/s";
constexpr std::string_view kTimeExamples = "a time such as 250us, 3ms, 1.5s, 10min, 2h";
constexpr std::string_view kCountExamples = "a whole number such as 100, 10k, 2M, 1e6";

[[noreturn]] void refuse(std::string_view text, std::string_view what, std::string_view examples,
                         const std::string& cure = "") {
  throw Error(ErrorKind::Usage, std::string(what))
      .found("'" + printable(std::string(text)) + "'")
      .expected(std::string(examples))
      .cure(cure);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the number off the front of `text`. More digits than int64 holds are refused, not rounded.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal number;
  size_t i = 0;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) number.negative = text[i++] == '-';
  bool any = false, point = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point) {
      point = true;
    } else if (is_digit(text[i])) {
      any = true;
      if (__builtin_mul_overflow(number.mantissa, int64_t{10}, &number.mantissa)) return std::nullopt;
      if (__builtin_add_overflow(number.mantissa, int64_t{text[i] - '0'}, &number.mantissa)) return std::nullopt;
      number.exponent -= point;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const size_t sign = i + 1 < text.size() && (text[i + 1] == '+' || text[i + 1] == '-');
    int exponent = 0;
    const char* first = text.data() + i + 1 + sign;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, exponent);
    if (error != std::errc() || end == first || exponent < 0 || exponent > 300) return std::nullopt;
    number.exponent += sign && text[i + 1] == '-' ? -exponent : exponent;
    i = static_cast<size_t>(end - text.data());
  }
  text.remove_prefix(i);
  return number;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

const Unit* find_unit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

// number * scale as an exact int64, or nothing if it is not whole or too large.
std::optional<int64_t> whole(const Decimal& number, int64_t scale) {
  __int128 value = static_cast<__int128>(number.mantissa) * scale;
  for (int e = number.exponent; e < 0; ++e) {
    if (value == 0) break;
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  for (int e = number.exponent; e > 0 && value != 0; --e) {
    value *= 10;
    if (value > std::numeric_limits<int64_t>::max()) return std::nullopt;
  }
  if (value > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return static_cast<int64_t>(number.negative ? -value : value);
}

std::string shortest(double value) {
  std::string text = fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace

int64_t parse_bytes(std::string_view text) {
  std::string_view rest = trimmed(text);
  const auto number = take_decimal(rest);
  if (!number || number->negative) refuse(text, "not a number of bytes", kBytesExamples);
  const std::string_view name = trimmed(rest);
  const Unit* unit = name.empty() ? &kByteUnits[0] : find_unit(kByteUnits, name);
  if (unit == nullptr) {
    std::string cure;
    if (name.size() == 1 && std::string_view("kKMGTP").find(name) != std::string_view::npos) {
      cure = fmt::format("say which: '{0}B' is a power of 1000, '{0}iB' a power of 1024", name);
    }
    refuse(text, "unknown unit of bytes", kBytesExamples, cure);
  }
  const auto value = whole(*number, unit->scale);
  if (!value) refuse(text, "not a whole number of bytes below 2^63", kBytesExamples);
  return *value;
}

double parse_rate(std::string_view text) {
  std::string_view rest = trimmed(text);
  const auto number = take_decimal(rest);
  if (!number || number->negative) refuse(text, "not a rate", kRateExamples);
  std::string_view name = trimmed(rest);
  const bool per_second = name.ends_with("/s");
  if (per_second) name = trimmed(name.substr(0, name.size() - 2));
  double scale = 0;
  if (name.empty() && !per_second) {
    scale = 1;
  } else if (const Unit* bits = find_unit(kBitUnits, name)) {
    scale = static_cast<double>(bits->scale) / 8;
  } else if (const Unit* bytes = find_unit(kByteUnits, name)) {
    if (!per_second) refuse(text, "bytes are not a rate", kRateExamples, "add '/s'");
    scale = static_cast<double>(bytes->scale);
  } else {
    refuse(text, "unknown unit of a rate", kRateExamples,
           "bits are written 'bit' and bytes 'B', as in 200Mbit/s and 25MB/s");
  }
  const double value = number->value() * scale;
  if (!std::isfinite(value)) refuse(text, "the rate is too large", kRateExamples);
  return value;
}

double parse_time(std::string_view text) {
  std::string_view rest = trimmed(text);
  const auto number = take_decimal(rest);
  if (!number || number->negative) refuse(text, "not a time", kTimeExamples);
  const std::string_view name = trimmed(rest);
  const Unit* unit = find_unit(kTimeUnits, name.empty() ? "s" : name);
  if (unit == nullptr) {
    refuse(text, "unknown unit of time", kTimeExamples,
           name == "m" ? "write 'min' for minutes, 'ms' for milliseconds" : "");
  }
  // Multiplied or divided by a whole number, so that 3ms is the double nearest to 0.003.
  constexpr int64_t kSecond = 1'000'000'000;
  const double value = unit->scale >= kSecond ? number->value() * static_cast<double>(unit->scale / kSecond)
                                              : number->value() / static_cast<double>(kSecond / unit->scale);
  if (!std::isfinite(value)) refuse(text, "the time is too large", kTimeExamples);
  return value;
}

int64_t parse_count(std::string_view text) {
  std::string_view rest = trimmed(text);
  const auto number = take_decimal(rest);
  if (!number) refuse(text, "not a whole number", kCountExamples);
  const std::string_view name = rest;
  const Unit* unit = find_unit(kCountUnits, name);
  if (unit == nullptr && !name.empty()) refuse(text, "not a whole number", kCountExamples);
  const auto value = whole(*number, unit == nullptr ? 1 : unit->scale);
  if (!value) refuse(text, "not a whole number below 2^63", kCountExamples);
  return *value;
}

double parse_number(std::string_view text) {
  std::string_view rest = trimmed(text);
  std::string_view shape = rest;
  // from_chars rounds correctly but also takes inf, nan and hexadecimal: the shape is checked first.
  if (!shape.empty() && (shape.front() == '+' || shape.front() == '-')) shape.remove_prefix(1);
  if (shape.find_first_not_of("0123456789.eE+-") != std::string_view::npos || shape.empty())
    refuse(text, "not a number", "a number such as 6e-4, 0.95, 3");
  if (shape.front() == '+' || shape.front() == '-') refuse(text, "not a number", "a number such as 6e-4, 0.95, 3");
  if (rest.front() == '+') rest.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::result_out_of_range)
    refuse(text, "the number is too large or too small", "a number such as 6e-4, 0.95, 3");
  if (error != std::errc() || end != rest.data() + rest.size() || !std::isfinite(value)) {
    refuse(text, "not a number", "a number such as 6e-4, 0.95, 3");
  }
  return value;
}

std::string format_bytes(int64_t bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = std::abs(static_cast<double>(bytes));
  size_t i = 0;
  while (value >= 1023.5 && i + 1 < std::size(kNames)) value /= 1024, ++i;
  return fmt::format("{}{} {}", bytes < 0 ? "-" : "", shortest(value), kNames[i]);
}

std::string format_rate(double bytes_per_s) {
  constexpr const char* kNames[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
  double value = bytes_per_s;
  size_t i = 0;
  while (value >= 999.5 && i + 1 < std::size(kNames)) value /= 1000, ++i;
  return fmt::format("{} {}", shortest(value), kNames[i]);
}

std::string format_time(double seconds) {
  if (seconds < 0) return "-" + format_time(-seconds);
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 999.5e-9) return fmt::format("{} ns", shortest(seconds * 1e9));
  if (seconds < 999.5e-6) return fmt::format("{} us", shortest(seconds * 1e6));
  if (seconds < 999.5e-3) return fmt::format("{} ms", shortest(seconds * 1e3));
  if (seconds < 99.5) return fmt::format("{} s", shortest(seconds));
  const double minutes = std::round(seconds / 60);
  if (seconds < 3570)
    return fmt::format("{} min {:02} s", std::floor(std::round(seconds) / 60),
                       static_cast<int>(std::fmod(std::round(seconds), 60.0)));
  if (minutes < 2880)
    return fmt::format("{} h {:02} min", std::floor(minutes / 60), static_cast<int>(std::fmod(minutes, 60.0)));
  return fmt::format("{} d", shortest(seconds / 86400));
}

std::string format_count(int64_t count) {
  constexpr const char* kNames[] = {"", "k", "M", "G", "T", "P", "E"};
  double value = std::abs(static_cast<double>(count));
  size_t i = 0;
  while (value >= 999.5 && i + 1 < std::size(kNames)) value /= 1000, ++i;
  return fmt::format("{}{}{}", count < 0 ? "-" : "", shortest(value), kNames[i]);
}

}  // namespace ballast
