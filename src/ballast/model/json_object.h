#pragma once
// Typed access to one JSON object that came from outside: every error names the file, the key, what was found and what
// was expected.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ballast {

// Parses text that must be one JSON object; throws Error(CorruptFile) with the byte of the fault.
nlohmann::json parse_json_object(const std::string& text, const std::string& name_for_errors);

class JsonObject {
 public:
  // `object` must outlive the reader. `prefix` is put before keys in messages: "rope_parameters.".
  JsonObject(const nlohmann::json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  // Absent and null are the same. The first of `keys` that is there counts.
  const nlohmann::json* find(const std::vector<std::string>& keys) const;
  bool has(const std::string& key) const { return find({key}) != nullptr; }
  bool absent(const std::string& key) const { return !object_.contains(key); }  // not even null

  std::optional<int64_t> integer(const std::vector<std::string>& keys, int64_t lowest, int64_t highest) const;
  int64_t required_integer(const std::vector<std::string>& keys, int64_t lowest, int64_t highest) const;
  std::optional<double> number(const std::string& key, double lowest, double highest) const;
  std::optional<bool> boolean(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::optional<JsonObject> object(const std::string& key) const;

  // Throws Error(Usage) for the value of a key.
  [[noreturn]] void refuse(const std::string& key, const std::string& what, const std::string& expected = "",
                           const std::string& cure = "give the key an expected value; a model that needs another one is "
                                                     "not supported") const;
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json& object_;
  std::string file_, prefix_;
};

}  // namespace ballast
