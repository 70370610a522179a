#include "ballast/model/json_object.h"

#include <fmt/format.h>

#include <cmath>

#include "ballast/base/error.h"
#include "ballast/base/json_fault.h"

namespace ballast {

namespace {

std::string shown(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace

nlohmann::json parse_json_object(const std::string& text, const std::string& name_for_errors) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& fault) {
    throw json_error(ErrorKind::CorruptFile, "not valid JSON", name_for_errors, fault, text)
        .cure("correct the file there, or copy it again if it was cut short");
  }
  if (!object.is_object())
    throw Error(ErrorKind::CorruptFile, "not a JSON object")
        .at(name_for_errors)
        .found(object.type_name())
        .expected("{...}");
  return object;
}

const nlohmann::json* JsonObject::find(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    const auto found = object_.find(key);
    if (found != object_.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

std::optional<int64_t> JsonObject::integer(const std::vector<std::string>& keys, int64_t lowest,
                                           int64_t highest) const {
  const nlohmann::json* value = find(keys);
  if (!value) return std::nullopt;
  std::string key = keys.front();
  for (const std::string& candidate : keys)
    if (has(candidate)) {
      key = candidate;
      break;
    }
  const std::string expected = fmt::format("an integer from {} to {}", lowest, highest);
  if (!value->is_number_integer()) refuse(key, "the value has the wrong type", expected);
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    refuse(key, "the value is out of range", expected);
  const int64_t number = value->get<int64_t>();
  if (number < lowest || number > highest) refuse(key, "the value is out of range", expected);
  return number;
}

int64_t JsonObject::required_integer(const std::vector<std::string>& keys, int64_t lowest, int64_t highest) const {
  const std::optional<int64_t> value = integer(keys, lowest, highest);
  if (!value)
    throw Error(ErrorKind::Usage, "a required key is missing")
        .at(file_, fmt::format("key {}{}", prefix_, keys.front()))
        .expected(fmt::format("an integer from {} to {}", lowest, highest))
        .cure("add the key; the model's own config.json has it");
  return *value;
}

std::optional<double> JsonObject::number(const std::string& key, double lowest, double highest) const {
  const nlohmann::json* value = find({key});
  if (!value) return std::nullopt;
  const std::string expected = fmt::format("a number from {} to {}", lowest, highest);
  if (!value->is_number()) refuse(key, "the value has the wrong type", expected);
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < lowest || number > highest) refuse(key, "the value is out of range", expected);
  return number;
}

std::optional<bool> JsonObject::boolean(const std::string& key) const {
  const nlohmann::json* value = find({key});
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "the value has the wrong type", "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonObject::text(const std::string& key) const {
  const nlohmann::json* value = find({key});
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(key, "the value has the wrong type", "a string");
  return value->get<std::string>();
}

std::optional<JsonObject> JsonObject::object(const std::string& key) const {
  const nlohmann::json* value = find({key});
  if (!value) return std::nullopt;
  if (!value->is_object()) refuse(key, "the value has the wrong type", "an object");
  return JsonObject(*value, file_, prefix_ + key + ".");
}

void JsonObject::refuse(const std::string& key, const std::string& what, const std::string& expected,
                        const std::string& cure) const {
  const nlohmann::json* value = find({key});
  throw Error(ErrorKind::Usage, what)
      .at(file_, fmt::format("key {}{}", prefix_, key))
      .found(value ? shown(*value) : "nothing")
      .expected(expected)
      .cure(cure);
}

}  // namespace ballast
