#include "ballast/base/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "ballast/base/check.h"
#include "ballast/base/units.h"

namespace ballast {

const Config::Value& Config::value(std::string_view path) const {
  const int64_t index = schema_->index(path);
  BALLAST_CHECK(index >= 0, "no key {} in the schema", path);
  return values_[static_cast<size_t>(index)];
}

bool Config::has(std::string_view path) const { return !value(path).node.is_null(); }
const Origin& Config::origin(std::string_view path) const { return value(path).origin; }
const YamlNode& Config::node(std::string_view path) const { return value(path).node; }

std::string Config::place(std::string_view path) const {
  const Value& found = value(path);
  if (found.node.mark.source == nullptr || found.origin.kind == Origin::Kind::Default) return std::string(path);
  return found.node.mark.text() + ", " + std::string(path);
}

bool Config::flag(std::string_view path) const { return node(path).scalar == "true"; }

int64_t Config::count(std::string_view path) const {
  BALLAST_CHECK(has(path), "{} is not set", path);
  return schema_->find(path)->type == ConfigType::Bytes ? parse_bytes(node(path).scalar)
                                                        : parse_count(node(path).scalar);
}

double Config::number(std::string_view path) const {
  BALLAST_CHECK(has(path), "{} is not set", path);
  return schema_->find(path)->number_of(node(path).scalar);
}

std::string Config::text(std::string_view path) const {
  BALLAST_CHECK(has(path), "{} is not set", path);
  return node(path).scalar;
}

std::vector<std::string> Config::texts(std::string_view path) const {
  const YamlNode& list = node(path);
  if (list.is_scalar()) return {list.scalar};
  std::vector<std::string> out;
  for (const YamlNode& item : list.items) out.push_back(item.scalar);
  return out;
}

std::vector<double> Config::numbers(std::string_view path) const {
  std::vector<double> out;
  for (const YamlNode& item : node(path).items) out.push_back(parse_number(item.scalar));
  return out;
}

std::optional<int64_t> Config::maybe_count(std::string_view path) const {
  return has(path) ? std::optional(count(path)) : std::nullopt;
}
std::optional<double> Config::maybe_number(std::string_view path) const {
  return has(path) ? std::optional(number(path)) : std::nullopt;
}
std::optional<std::string> Config::maybe_text(std::string_view path) const {
  return has(path) ? std::optional(text(path)) : std::nullopt;
}

std::string Config::canonical(std::string_view path) const {
  if (!has(path)) return "";
  switch (schema_->find(path)->type) {
    case ConfigType::Flag:
      return flag(path) ? "true" : "false";
    case ConfigType::Count:
    case ConfigType::Bytes:
      return fmt::format("{}", count(path));
    case ConfigType::Number:
    case ConfigType::Rate:
    case ConfigType::Time:
      return fmt::format("{}", number(path));
    case ConfigType::Numbers:
      return fmt::format("[{}]", fmt::join(numbers(path), ", "));
    case ConfigType::Texts: {
      std::string out;
      for (const std::string& item : texts(path)) out += (out.empty() ? "" : ", ") + scalar_text(item);
      return "[" + out + "]";
    }
    case ConfigType::Text:
    case ConfigType::Choice:
      return scalar_text(text(path));
    case ConfigType::Tree:
      return flow_text(node(path));
  }
  return "";
}

uint64_t Config::fingerprint() const {
  std::string all;
  for (const ConfigKey& key : schema_->keys()) all += key.path + "=" + canonical(key.path) + "\n";
  return XXH3_64bits(all.data(), all.size());
}

uint64_t Config::resume_fingerprint() const {
  std::string all;
  for (const ConfigKey& key : schema_->keys()) {
    if (!key.on_resume) all += key.path + "=" + canonical(key.path) + "\n";
  }
  return XXH3_64bits(all.data(), all.size());
}

std::vector<std::string> check_resume(const Config& before, const Config& now) {
  std::vector<std::string> changed;
  for (const ConfigKey& key : now.schema().keys()) {
    const std::string old_value = before.canonical(key.path), new_value = now.canonical(key.path);
    if (old_value == new_value) continue;
    if (!key.on_resume) {
      throw Error(ErrorKind::Usage, fmt::format("'{}' may not change when a run is resumed", key.path))
          .at(now.place(key.path))
          .found(new_value.empty() ? "not set" : new_value)
          .expected(old_value.empty() ? "not set, as in the run" : old_value + ", as in the run")
          .cure("restore it, or start a new run in another folder");
    }
    changed.push_back(key.path);
  }
  return changed;
}

}  // namespace ballast
