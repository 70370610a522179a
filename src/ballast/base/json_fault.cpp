// The library's messages are "[json.exception.KIND.NUMBER] text"; only the parts of the text that help are kept.
#include "ballast/base/json_fault.h"

#include <fmt/format.h>

#include <algorithm>

namespace ballast {

namespace {

constexpr size_t kShownBytes = 24;

// What stands between `before` and `after` (or the end), or "".
std::string between(const std::string& text, std::string_view before, std::string_view after) {
  const size_t begin = text.find(before);
  if (begin == std::string::npos) return "";
  const size_t from = begin + before.size();
  const size_t end = after.empty() ? std::string::npos : text.find(after, from);
  return text.substr(from, end == std::string::npos ? end : end - from);
}

std::string shown(std::string_view text, size_t byte) {
  if (text.empty()) return "no text";
  if (byte >= text.size()) return "the end of the text";
  const std::string_view rest = text.substr(byte);
  const size_t length = std::min({rest.find('\n'), rest.size(), kShownBytes});
  return length == 0 ? "the end of the line" : fmt::format("'{}'", printable(std::string(rest.substr(0, length))));
}

}  // namespace

JsonFault describe_json_fault(const nlohmann::json::exception& fault, std::string_view text) {
  const std::string raw = fault.what();
  const size_t tag = raw.starts_with('[') ? raw.find("] ") : std::string::npos;
  const std::string message = tag == std::string::npos ? raw : raw.substr(tag + 2);
  JsonFault out;
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&fault)) {
    const size_t byte = parse->byte > 0 ? parse->byte - 1 : 0;  // the library counts the bytes that it has read
    const std::string_view before = text.substr(0, std::min(byte, text.size()));
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    out.byte = static_cast<int64_t>(before.size());
    out.place = fmt::format("byte {} (line {}, column {})", out.byte,
                            std::count(before.begin(), before.end(), '\n') + 1, before.size() - line_start + 1);
    out.found = shown(text, byte);
    out.expected = between(message, "; expected ", "");
    if (out.expected.empty()) out.expected = message.find("UTF-8") == std::string::npos ? "valid JSON" : "valid UTF-8";
    return out;
  }
  const std::string wanted = between(message, "type must be ", ", but is ");
  const std::string key = between(message, "key '", "' not found");
  if (!wanted.empty()) {
    out.found = printable(between(message, ", but is ", ""));
    out.expected = printable(wanted);
  } else if (!key.empty()) {
    out.found = fmt::format("no key '{}'", printable(key));
  } else {
    out.found = printable(message);
  }
  return out;
}

Error json_error(ErrorKind kind, const std::string& what, const std::string& file,
                 const nlohmann::json::exception& fault, std::string_view text) {
  const JsonFault described = describe_json_fault(fault, text);
  return Error(kind, what).at(file, described.place).found(described.found).expected(described.expected);
}

}  // namespace ballast
