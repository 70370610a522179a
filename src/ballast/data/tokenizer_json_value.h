#pragma once
// JSON of tokenizer files with the place of each value, so that what is missing, ill-typed or unknown is named.
#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ballast {

class JsonValue {
 public:
  JsonValue(simdjson::dom::element value, const std::string& file, std::string place)
      : value_(value), file_(&file), place_(std::move(place)) {}

  const std::string& file() const { return *file_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_.is_null(); }
  bool is_string() const { return value_.is_string(); }
  bool is_array() const { return value_.is_array(); }

  // Each throws Error(Data) for another type.
  simdjson::dom::object object() const;
  simdjson::dom::array array() const;
  std::string_view string() const;
  bool boolean() const;
  int64_t integer() const;

  JsonValue element(simdjson::dom::element value, size_t index) const;   // of an array
  std::optional<JsonValue> find(const char* key) const;                  // of an object; nothing if absent or null
  JsonValue get(const char* key) const;                                  // throws Error(Data) if absent or null
  bool boolean_or(const char* key, bool otherwise) const;
  // Throws Error(Data) naming the first other key.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& cure = "") const;

 private:
  simdjson::dom::element value_;
  const std::string* file_;
  std::string place_;
};

// The document, which lives in `parser`; `file` must outlive the value. Throws Error(CorruptFile) with the byte of the first error.
JsonValue parse_json(simdjson::dom::parser& parser, std::string_view bytes, const std::string& file);

}  // namespace ballast
