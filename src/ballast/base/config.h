#pragma once
// A resolved configuration: every key of a schema with its value and where that came from. Strict: unknown keys, wrong
// types and duplicates are Error(Usage) with file, line, column and the nearest key.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/base/schema.h"
#include "ballast/base/yaml.h"

namespace ballast {

struct Origin {
  enum class Kind : uint8_t { Default, File, CommandLine };
  Kind kind = Kind::Default;
  std::string text = "default";  // "default", "a.yaml:3", "command line"
};

class Config {
 public:
  // Defaults, then the file, then `overrides` ("a.b=value", the right side YAML). Throws Error(Usage).
  static Config load(const ConfigSchema& schema, const std::filesystem::path& file,
                     std::span<const std::string> overrides = {});
  // The same from text (file_name is for messages); empty text holds no key.
  static Config parse(const ConfigSchema& schema, std::string_view text, const std::string& file_name,
                      std::span<const std::string> overrides = {});

  const ConfigSchema& schema() const { return *schema_; }
  bool has(std::string_view path) const;  // given or with a default
  const Origin& origin(std::string_view path) const;
  const YamlNode& node(std::string_view path) const;  // Null if not set
  std::string place(std::string_view path) const;     // "a.yaml:3:7, optimizer.lr": for errors
  // Typed values; the key must be set (BALLAST_CHECK), units are applied: bytes, bytes/s, seconds.
  bool flag(std::string_view path) const;
  int64_t count(std::string_view path) const;  // also Bytes
  double number(std::string_view path) const;  // also Rate, Time
  std::string text(std::string_view path) const;
  std::vector<std::string> texts(std::string_view path) const;
  std::vector<double> numbers(std::string_view path) const;
  // Nothing if the key is not set.
  std::optional<int64_t> maybe_count(std::string_view path) const;
  std::optional<double> maybe_number(std::string_view path) const;
  std::optional<std::string> maybe_text(std::string_view path) const;

  // The resolved configuration as YAML, each value with its origin as a comment. Reads back to the same values.
  std::string write() const;
  // A value in one form for each meaning ("2M" and "2000000" agree); "" if not set.
  std::string canonical(std::string_view path) const;
  // Equal for equal values whatever their origin.
  uint64_t fingerprint() const;
  // The same of the keys that may not change on --resume: equal where check_resume has nothing to refuse.
  uint64_t resume_fingerprint() const;

 private:
  struct Value {
    YamlNode node;
    Origin origin;
  };
  friend class ConfigReader;
  const Value& value(std::string_view path) const;
  const ConfigSchema* schema_ = nullptr;
  std::vector<Value> values_;  // as schema_->keys()
};

// Error(Usage) at a node of the configuration.
Error config_error(const Mark& mark, std::string_view path, const std::string& what);

// The keys whose values differ and that must not differ on --resume: throws Error(Usage) naming the first with both
// values. Returns the paths of those that differ and may.
std::vector<std::string> check_resume(const Config& before, const Config& now);

}  // namespace ballast
