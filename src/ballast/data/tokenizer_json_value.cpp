#include "ballast/data/tokenizer_json_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/base/json_fault.h"

namespace ballast {
namespace {

const char* type_name(simdjson::dom::element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY: return "an array";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a truth value";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64: return "an integer";
    case simdjson::dom::element_type::DOUBLE: return "a fraction";
  }
  return "something else";
}

template <class T>
T typed(simdjson::dom::element value, const std::string& file, const std::string& place, const char* expected) {
  T result;
  if (value.get(result) != simdjson::SUCCESS) {
    throw Error(ErrorKind::Data, "a value has the wrong type").at(file, place).found(type_name(value)).expected(expected);
  }
  return result;
}

}  // namespace

simdjson::dom::object JsonValue::object() const { return typed<simdjson::dom::object>(value_, *file_, place_, "an object"); }
simdjson::dom::array JsonValue::array() const { return typed<simdjson::dom::array>(value_, *file_, place_, "an array"); }
std::string_view JsonValue::string() const { return typed<std::string_view>(value_, *file_, place_, "a string"); }
bool JsonValue::boolean() const { return typed<bool>(value_, *file_, place_, "true or false"); }
int64_t JsonValue::integer() const { return typed<int64_t>(value_, *file_, place_, "an integer"); }

JsonValue JsonValue::element(simdjson::dom::element value, size_t index) const {
  return JsonValue(value, *file_, fmt::format("{}[{}]", place_, index));
}

std::optional<JsonValue> JsonValue::find(const char* key) const {
  simdjson::dom::element value;
  if (object().at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return {};
  return JsonValue(value, *file_, place_.empty() ? key : place_ + "." + key);
}

JsonValue JsonValue::get(const char* key) const {
  if (auto value = find(key)) return *value;
  std::vector<std::string> keys;
  for (const auto field : object()) {
    if (keys.size() < 20) keys.push_back(printable(std::string(field.key), 40));
  }
  throw Error(ErrorKind::Data, fmt::format("key '{}' is missing", key))
      .at(*file_, place_.empty() ? "the top level" : place_)
      .found(keys.empty() ? "no keys" : fmt::format("keys {}", fmt::join(keys, ", ")));
}

bool JsonValue::boolean_or(const char* key, bool otherwise) const {
  const auto value = find(key);
  return value ? value->boolean() : otherwise;
}

void JsonValue::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto field : object()) {
    if (std::find(keys.begin(), keys.end(), field.key) == keys.end()) {
      throw Error(ErrorKind::Data, fmt::format("key '{}' is not supported", printable(std::string(field.key))))
          .at(*file_, place_.empty() ? "the top level" : place_)
          .expected(fmt::format("{}", fmt::join(keys, ", ")));
    }
  }
}

void JsonValue::refuse(const std::string& what, const std::string& cure) const {
  throw Error(ErrorKind::Data, what).at(*file_, place_).cure(cure);
}

JsonValue parse_json(simdjson::dom::parser& parser, std::string_view bytes, const std::string& file) {
  if (bytes.empty()) throw Error(ErrorKind::CorruptFile, "the file is empty").at(file);
  simdjson::dom::element root;
  const simdjson::error_code error = parser.parse(simdjson::padded_string(bytes)).get(root);
  if (error == simdjson::SUCCESS) return JsonValue(root, file, "");
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  // simdjson tells no place; a second parser, run only now, does.
  try {
    const auto ignored = nlohmann::json::parse(bytes.begin(), bytes.end());
  } catch (const nlohmann::json::exception& second) {
    throw json_error(ErrorKind::CorruptFile, "the file is not valid JSON", file, second, bytes)
        .cure("correct the file there, or copy it again if it was cut short");
  }
  throw Error(ErrorKind::CorruptFile, "the file is not valid JSON").at(file).found(simdjson::error_message(error));
}

}  // namespace ballast
